-- The statements of the PostgreSQL store about vector stores, their files and their chunks. Where several rows are
-- locked, those of files come before that of their vector store, which the triggers change.

-- name: lock_corpora_of
-- Lets one server at a time make a vector store of a tenant, up to the end of its transaction.
SELECT pg_advisory_xact_lock(hashtextextended('vector stores of ' || :tenant::text, 0));

-- name: count_vector_stores
-- How many other vector stores a tenant has that have not expired.
SELECT count(*) FROM vector_stores AS v WHERE v.tenant = :tenant AND v.id <> :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: count_all_vector_stores
-- How many vector stores there are, of every tenant.
SELECT count(*) FROM vector_stores WHERE NOT gone;

-- name: report_corpora
-- The vector stores of every tenant, and how many chunks are in them.
SELECT (SELECT count(*) FROM vector_stores WHERE NOT gone),
  (SELECT coalesce(sum(chunks), 0)::bigint FROM store_files WHERE status <> 'removed');

-- name: lose_expired_store
-- Makes room for a vector store of the id of one whose time is up.
UPDATE vector_stores SET gone = true
WHERE n = (SELECT v.n FROM vector_stores AS v WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone)
  AND expires_at <= floor(:now::double precision)::bigint;

-- name: insert_vector_store
-- Makes a vector store, unless it is there.
INSERT INTO vector_stores (tenant, id, name, created_at, last_active_at, expires_after_days, expires_at, detail)
VALUES (:tenant, :id, :name, :created_at, :last_active_at, :days, :expires_at, :detail)
ON CONFLICT DO NOTHING;

-- name: find_vector_store
-- A vector store by id that has not expired.
SELECT v.id, v.name, v.created_at, v.last_active_at, v.expires_after_days, v.detail, v.usage_bytes, v.version,
  v.pending, v.in_progress, v.completed, v.failed, v.cancelled
FROM vector_stores AS v WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: find_vector_store_named
-- The newest vector store of a name that has not expired.
SELECT v.id, v.name, v.created_at, v.last_active_at, v.expires_after_days, v.detail, v.usage_bytes, v.version,
  v.pending, v.in_progress, v.completed, v.failed, v.cancelled
FROM vector_stores AS v WHERE v.tenant = :tenant AND v.name = :name AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
ORDER BY v.id DESC LIMIT 1;

-- name: vector_stores_up
-- Some of a tenant's vector stores, oldest first.
SELECT v.id, v.name, v.created_at, v.last_active_at, v.expires_after_days, v.detail, v.usage_bytes, v.version,
  v.pending, v.in_progress, v.completed, v.failed, v.cancelled
FROM vector_stores AS v
WHERE v.tenant = :tenant AND v.id > :low AND v.id < :high AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
ORDER BY v.id LIMIT :most;

-- name: vector_stores_down
-- Some of a tenant's vector stores, newest first.
SELECT v.id, v.name, v.created_at, v.last_active_at, v.expires_after_days, v.detail, v.usage_bytes, v.version,
  v.pending, v.in_progress, v.completed, v.failed, v.cancelled
FROM vector_stores AS v
WHERE v.tenant = :tenant AND v.id > :low AND v.id < :high AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
ORDER BY v.id DESC LIMIT :most;

-- name: change_vector_store
-- Gives a vector store another name, another time to live and another detail.
UPDATE vector_stores AS v SET name = :name, expires_after_days = :days::integer, detail = :detail,
  last_active_at = greatest(last_active_at, :when::bigint),
  expires_at = greatest(last_active_at, :when::bigint) + :days::integer * 86400::bigint
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
RETURNING v.id, v.name, v.created_at, v.last_active_at, v.expires_after_days, v.detail, v.usage_bytes, v.version,
  v.pending, v.in_progress, v.completed, v.failed, v.cancelled;

-- name: use_vector_store
-- Notes that a vector store was used.
UPDATE vector_stores AS v SET last_active_at = :when, expires_at = :when + expires_after_days * 86400::bigint
WHERE v.tenant = :tenant AND v.id = :id AND v.last_active_at < :when::bigint AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: lose_vector_store
-- Lets nobody find a vector store any more.
UPDATE vector_stores AS v SET gone = true WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision) RETURNING 1;

-- name: lose_expired_stores
-- Lets nobody find the vector stores whose time is up.
UPDATE vector_stores SET gone = true WHERE n = ANY (ARRAY(
  SELECT n FROM vector_stores WHERE NOT gone AND expires_at <= floor(:now::double precision)::bigint
  ORDER BY expires_at LIMIT :most));

-- name: lose_stores_of
-- Lets nobody find the vector stores of a tenant.
UPDATE vector_stores SET gone = true WHERE tenant = :tenant AND NOT gone;

-- name: number_of_store
-- The number of a vector store by id that has not expired.
SELECT v.n FROM vector_stores AS v WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: lock_adding
-- Lets one server at a time put files into a vector store, up to the end of its transaction.
SELECT pg_advisory_xact_lock(hashtextextended('files of vector store ' || :store::text, 0));

-- name: lock_uploads
-- The numbers of those files of a tenant that are whole and have not expired, by id; they stay until then.
SELECT id, n FROM files
WHERE tenant = :tenant AND id = ANY (:ids::text[]) AND whole
  AND (expires_at IS NULL OR expires_at > :now::double precision)
ORDER BY id FOR KEY SHARE;

-- name: known_store_files
-- Those files of a vector store that have one of these ids or external ids, locked in order.
SELECT file_id, n, external_id FROM store_files
WHERE n = ANY (ARRAY(
  SELECT s.n FROM store_files AS s
  WHERE s.store = :store AND s.status <> 'removed' AND s.file_id = ANY (:ids::text[])
  UNION
  SELECT s.n FROM store_files AS s
  WHERE s.store = :store AND s.status <> 'removed' AND s.external_id = ANY (:names::text[])
)) AND status <> 'removed'
ORDER BY n FOR UPDATE;

-- name: lock_store
-- How many files a vector store has that is not gone, locked.
SELECT pending + in_progress + completed + failed + cancelled FROM vector_stores
WHERE n = :n AND NOT gone FOR NO KEY UPDATE;

-- name: lose_store_files
-- Lets nobody find files of vector stores any more.
UPDATE store_files SET status = 'removed' WHERE n = ANY (:numbers::bigint[]) AND status <> 'removed' RETURNING n;

-- name: insert_file_batch
-- Begins a batch.
INSERT INTO batches (store, id, created_at) VALUES (:store, :id, :created_at) RETURNING n;

-- name: insert_store_files
-- Puts uploaded files into a vector store.
INSERT INTO store_files (store, upload, file_id, created_at, status, attributes, detail, external_id, batch)
SELECT :store, u.upload, u.file_id, u.created_at, 'pending', u.attributes, u.detail, u.external_id, :batch
FROM unnest(
  :uploads::bigint[], :ids::text[], :times::bigint[], :attributes::bytea[], :details::bytea[], :names::text[]
) AS u (upload, file_id, created_at, attributes, detail, external_id);

-- name: use_store
-- Notes that a vector store was used.
UPDATE vector_stores SET last_active_at = :when, expires_at = :when + expires_after_days * 86400::bigint
WHERE n = :n AND last_active_at < :when::bigint;

-- name: renew_store_file
-- Puts a file into its vector store again, as it was but for its chunks.
INSERT INTO store_files (store, upload, file_id, created_at, status, attributes, detail, external_id, batch, attempts)
SELECT store, upload, file_id, created_at, :status, attributes, detail, external_id, batch, attempts
FROM store_files WHERE n = :n RETURNING n;

-- name: find_store_file
-- A file of a vector store by its id or its external id; the one with the id first.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM vector_stores AS v
JOIN store_files AS s ON s.n = coalesce(
  (SELECT x.n FROM store_files AS x WHERE x.store = v.n AND x.file_id = :file AND x.status <> 'removed'),
  (SELECT x.n FROM store_files AS x WHERE x.store = v.n AND x.external_id = :file AND x.status <> 'removed')
)
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: store_file_by_number
-- A file of a vector store by its number.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE s.n = :n;

-- name: store_files_up
-- Some of the files of a vector store, by id upwards.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM vector_stores AS v
JOIN store_files AS s ON s.store = v.n AND s.status <> 'removed' AND s.file_id > :low AND s.file_id < :high
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
  AND (:statuses::text[] IS NULL OR s.status = ANY (:statuses::text[]))
  AND (:batch::text IS NULL OR b.id = :batch::text)
ORDER BY s.file_id LIMIT :most;

-- name: store_files_down
-- Some of the files of a vector store, by id downwards.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM vector_stores AS v
JOIN store_files AS s ON s.store = v.n AND s.status <> 'removed' AND s.file_id > :low AND s.file_id < :high
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
  AND (:statuses::text[] IS NULL OR s.status = ANY (:statuses::text[]))
  AND (:batch::text IS NULL OR b.id = :batch::text)
ORDER BY s.file_id DESC LIMIT :most;

-- name: change_store_file
-- Gives a file other attributes; whether it is found.
UPDATE store_files SET attributes = :attributes WHERE n = :n AND status <> 'removed' RETURNING status = 'completed';

-- name: note_change
-- Raises the version of a vector store.
UPDATE vector_stores SET version = version + 1 WHERE n = (SELECT store FROM store_files WHERE n = :n);

-- name: find_file_batch
-- A batch of a vector store.
SELECT b.id, b.created_at, b.is_cancelled, b.pending, b.in_progress, b.completed, b.failed, b.cancelled, b.n
FROM vector_stores AS v JOIN batches AS b ON b.store = v.n
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision) AND b.id = :batch;

-- name: waiting_of_batch
-- The files of a batch that have not been ingested and how many chunks they have, locked in order.
SELECT n, chunks FROM store_files
WHERE batch = :batch AND status NOT IN ('completed', 'failed', 'cancelled', 'removed') ORDER BY file_id FOR UPDATE;

-- name: cancel_store_files
-- Cancels files that have no chunks yet.
UPDATE store_files SET status = 'cancelled' WHERE n = ANY (:numbers::bigint[]);

-- name: cancel_batch
-- Marks a batch as cancelled.
UPDATE batches SET is_cancelled = true WHERE n = :batch;

-- name: find_ingestion
-- The oldest file that waits for an owner, locked, and how many chunks an earlier one has left.
SELECT s.n, s.chunks FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
WHERE s.status IN ('pending', 'in_progress')
  AND (s.status = 'pending' OR (s.owner <> ALL (:owners::text[])
  -- Whoever has entered since the caller last looked is alive, although the caller does not name it.
  AND (s.owner = ANY (:seen::text[]) OR (SELECT o.id FROM owners AS o WHERE o.id = s.owner) IS NULL)))
  AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
ORDER BY s.created_at, s.n LIMIT 1 FOR UPDATE OF s SKIP LOCKED;

-- name: claim_ingestion
-- Gives a file to an owner.
UPDATE store_files SET status = 'in_progress', owner = :owner, claim = :claim, fence = fence + 1,
  attempts = attempts + 1
WHERE n = :n;

-- name: claim_of
-- A claimed file, whose it is, and its claim.
SELECT s.n, v.tenant, s.fence, s.attempts FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
WHERE s.claim = :claim AND s.claim <> '';

-- name: ingestion_claim
-- The vector store of a file whose claim is good, locked, and how many chunks the file has.
SELECT s.store, s.chunks FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
WHERE s.n = :n AND s.fence = :fence AND s.status = 'in_progress' AND NOT v.gone FOR UPDATE OF s;

-- name: insert_corpus_chunks
-- Adds chunks; the places of those that were not there.
INSERT INTO corpus_chunks (file, pos, heading, text, detail)
SELECT :file, c.* FROM unnest(:places::integer[], :headings::text[], :texts::text[], :details::bytea[]) AS c
ON CONFLICT DO NOTHING RETURNING pos;

-- name: insert_corpus_vectors
-- Adds vectors of chunks.
INSERT INTO corpus_vectors (file, pos, vector)
SELECT :file, c.* FROM unnest(:places::integer[], :vectors::bytea[]) AS c
ON CONFLICT DO NOTHING;

-- name: insert_corpus_words
-- Adds the words of chunks, each with the mark of their vector store.
INSERT INTO corpus_words (file, pos, length, words)
SELECT :file, c.pos, (SELECT coalesce(sum(cardinality(u.positions)), 0) FROM unnest(c.words) AS u),
  c.words || array_to_tsvector(ARRAY[:mark::text])
FROM (
  SELECT t.pos, to_tsvector('english', t.words) AS words
  FROM unnest(:places::integer[], :texts::text[]) AS t (pos, words)
) AS c
ON CONFLICT DO NOTHING;

-- name: count_corpus_chunks
-- Notes chunks that came in, and their bytes.
UPDATE store_files SET chunks = chunks + :added, usage_bytes = usage_bytes + :size WHERE n = :n;

-- name: complete_store_file
-- Lets the chunks of a file be found.
UPDATE store_files SET status = 'completed', owner = '', counted = true WHERE n = :n;

-- name: count_terms
-- Counts the words of a file's chunks for its vector store, which is locked.
INSERT INTO corpus_terms AS t (store, word, chunks)
SELECT :store, u.lexeme, count(*) FROM corpus_words AS w, unnest(w.words) AS u
WHERE w.file = :file AND left(u.lexeme, 1) <> '#' GROUP BY u.lexeme
ON CONFLICT (store, word) DO UPDATE SET chunks = t.chunks + excluded.chunks;

-- name: count_texts
-- Counts the chunks of a file that have words for its vector store.
UPDATE vector_stores AS v SET texts = v.texts + w.texts, words = v.words + w.words
FROM (SELECT count(*) AS texts, coalesce(sum(length), 0) AS words FROM corpus_words WHERE file = :file) AS w
WHERE v.n = :store;

-- name: fail_store_file
-- Notes why a file could not be ingested.
UPDATE store_files SET status = 'failed', owner = '', error_code = :code, error_message = :message WHERE n = :n;

-- name: free_store_file
-- Lets a file wait for an owner again; the claim that was given back does not count.
UPDATE store_files SET status = 'pending', owner = '', claim = '', attempts = attempts - 1 WHERE n = :n;

-- name: chunks_at
-- The chunks at some places of a vector store.
SELECT s.file_id, c.pos, c.heading, c.text, c.detail
FROM vector_stores AS v
CROSS JOIN unnest(:files::text[], :places::integer[]) AS p (file_id, pos)
JOIN store_files AS s ON s.store = v.n AND s.file_id = p.file_id AND s.status = 'completed' AND s.status <> 'removed'
JOIN corpus_chunks AS c ON c.file = s.n AND c.pos = p.pos
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: found_files
-- Some of the files of a vector store that are found, from one on, with how many chunks they have.
SELECT s.n, s.file_id, s.chunks FROM vector_stores AS v
JOIN store_files AS s ON s.store = v.n AND s.status <> 'removed' AND s.file_id >= :low
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision)
  AND s.status = 'completed' AND s.chunks > 0 AND (:files::text[] IS NULL OR s.file_id = ANY (:files::text[]))
ORDER BY s.file_id LIMIT :most;

-- name: corpus_vectors
-- Some of the vectors of some files, in the order of their places; those of the first file beyond a place.
SELECT f.number, c.pos, c.vector FROM unnest(:numbers::bigint[]) WITH ORDINALITY AS f (n, number)
CROSS JOIN LATERAL (
  SELECT w.pos, w.vector FROM corpus_vectors AS w
  WHERE w.file = f.n AND w.pos > CASE WHEN f.number = 1 THEN :after::integer ELSE -1 END
  ORDER BY w.pos LIMIT :most
) AS c
ORDER BY f.number, c.pos LIMIT :most;

-- name: corpus_chunks
-- Some of the chunks of some files, in the order of their places; those of the first file beyond a place.
SELECT f.number, c.pos, c.heading, c.text, c.detail FROM unnest(:numbers::bigint[]) WITH ORDINALITY AS f (n, number)
CROSS JOIN LATERAL (
  SELECT w.pos, w.heading, w.text, w.detail FROM corpus_chunks AS w
  WHERE w.file = f.n AND w.pos > CASE WHEN f.number = 1 THEN :after::integer ELSE -1 END
  ORDER BY w.pos LIMIT :most
) AS c
ORDER BY f.number, c.pos LIMIT :most;

-- name: searched_store
-- A vector store to be searched: its number, how many chunks of it have words, and how many words.
SELECT v.n, v.texts, v.words FROM vector_stores AS v WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: stems
-- How many chunks of a vector store hold a word with the stem of these.
SELECT t.word, t.chunks FROM (
  SELECT DISTINCT u.lexeme FROM unnest(to_tsvector('english', :words)) AS u
) AS q JOIN corpus_terms AS t ON t.store = :store AND t.word = q.lexeme
WHERE t.chunks > 0;

-- name: rank_chunks
-- The best chunks of a vector store that hold some words, by BM25 with k1 = 1.2 and b = 0.75; ranked are those that
-- are the best by the weights of the words alone, since taking a chunk's words apart is slow.
WITH asked AS MATERIALIZED (
  SELECT a.query::tsquery AS query, a.weight
  FROM unnest(:queries::text[], :weights::double precision[]) AS a (query, weight)
), hits AS MATERIALIZED (
  SELECT w.file, w.pos, (SELECT sum(a.weight) FROM asked AS a WHERE w.words @@ a.query) AS weight
  FROM corpus_words AS w WHERE w.words @@ :sought::text::tsquery
), rough AS MATERIALIZED (
  SELECT s.file_id, h.file, h.pos, h.weight FROM hits AS h CROSS JOIN LATERAL (
    -- The limit lets each be looked up by its number, however many files there are.
    SELECT f.file_id FROM store_files AS f WHERE f.n = h.file AND f.status = 'completed' LIMIT 1
  ) AS s
  WHERE :files::text[] IS NULL OR s.file_id = ANY (:files::text[])
  ORDER BY h.weight DESC, s.file_id, h.pos LIMIT :ranked
)
SELECT r.file_id, r.pos, (
  SELECT sum((:weights::double precision[])[array_position(:stems::text[], u.lexeme)]
    * cardinality(u.positions) * 2.2
    / (cardinality(u.positions) + 1.2 * (0.25 + 0.75 * w.length / :average::double precision)))
  FROM unnest(w.words) AS u
) AS score
FROM rough AS r JOIN corpus_words AS w ON w.file = r.file AND w.pos = r.pos
ORDER BY score DESC, r.file_id, r.pos LIMIT :most;

-- name: removed_file
-- A file that nobody finds any more, locked, and whether the words of its chunks are counted.
SELECT s.n, s.store, s.counted FROM store_files AS s WHERE s.status = 'removed'
ORDER BY s.n LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: lose_files_of_gone
-- Lets nobody find some of the files of a vector store that is being removed.
UPDATE store_files SET status = 'removed' WHERE n = ANY (ARRAY(
  SELECT s.n FROM store_files AS s
  WHERE s.store = (SELECT v.n FROM vector_stores AS v WHERE v.gone ORDER BY v.n LIMIT 1) AND s.status <> 'removed'
  LIMIT :most FOR UPDATE SKIP LOCKED));

-- name: some_places
-- Some of the places of a file's chunks.
SELECT pos FROM corpus_chunks WHERE file = :file ORDER BY pos LIMIT :most;

-- name: uncount_terms
-- Counts the words of some chunks no more for their vector store, which is locked.
UPDATE corpus_terms AS t SET chunks = t.chunks - d.chunks FROM (
  SELECT u.lexeme, count(*) AS chunks FROM corpus_words AS w, unnest(w.words) AS u
  WHERE w.file = :file AND w.pos = ANY (:places::integer[]) GROUP BY u.lexeme
) AS d WHERE t.store = :store AND t.word = d.lexeme;

-- name: uncount_texts
-- Counts some chunks no more for their vector store.
UPDATE vector_stores AS v SET texts = v.texts - w.texts, words = v.words - w.words
FROM (
  SELECT count(*) AS texts, coalesce(sum(length), 0) AS words FROM corpus_words
  WHERE file = :file AND pos = ANY (:places::integer[])
) AS w WHERE v.n = :store;

-- name: delete_corpus_chunks
-- Removes some chunks of a file, with their vectors and words.
WITH vectors AS (
  DELETE FROM corpus_vectors WHERE file = :file AND pos = ANY (:places::integer[])
), words AS (
  DELETE FROM corpus_words WHERE file = :file AND pos = ANY (:places::integer[])
)
DELETE FROM corpus_chunks WHERE file = :file AND pos = ANY (:places::integer[]);

-- name: delete_store_file
-- Removes the row of a file of a vector store.
DELETE FROM store_files WHERE n = :n;

-- name: gone_store
-- A vector store that is being removed and has no files any more, locked.
SELECT v.n FROM vector_stores AS v
WHERE v.gone AND (SELECT s.n FROM store_files AS s WHERE s.store = v.n LIMIT 1) IS NULL
ORDER BY v.n LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: delete_terms_of
-- Removes some of the counts of words of a vector store.
DELETE FROM corpus_terms WHERE store = :store AND word = ANY (ARRAY(
  SELECT word FROM corpus_terms WHERE store = :store LIMIT :most));

-- name: delete_batches_of
-- Removes the batches of a vector store.
DELETE FROM batches WHERE store = :store;

-- name: delete_vector_store
-- Removes the row of a vector store.
DELETE FROM vector_stores WHERE n = :store;
