-- The statements of the SQLite store about vector stores, their files and their chunks.

-- name: vector_stores_held_of_tenant
-- How many vector stores a tenant has that have not expired.
SELECT count(*) FROM vector_stores WHERE tenant = ? AND gone = 0 AND (expires_at IS NULL OR expires_at > ?);

-- name: count_all_vector_stores
-- How many vector stores there are, of every tenant.
SELECT count(*) FROM vector_stores WHERE gone = 0;

-- name: any_index
-- Whether any vector store has a text index.
SELECT EXISTS (SELECT 1 FROM vector_stores WHERE indexed = 1);

-- name: insert_vector_store
-- Makes a vector store; one of its id whose time is up makes room for it.
INSERT INTO vector_stores (tenant, id, name, created_at, last_active_at, expires_after_days, expires_at, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: find_vector_store
-- A vector store by id that has not expired.
SELECT id, name, created_at, last_active_at, expires_after_days, detail, usage_bytes, version,
  pending, in_progress, completed, failed, cancelled
FROM vector_stores
WHERE tenant = :tenant AND id = :id AND gone = 0 AND (expires_at IS NULL OR expires_at > :now);

-- name: find_vector_store_named
-- The newest vector store of a name that has not expired.
SELECT id, name, created_at, last_active_at, expires_after_days, detail, usage_bytes, version,
  pending, in_progress, completed, failed, cancelled
FROM vector_stores
WHERE tenant = :tenant AND name = :name AND gone = 0 AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id DESC LIMIT 1;

-- name: vector_stores_up
-- Some of a tenant's vector stores, oldest first.
SELECT id, name, created_at, last_active_at, expires_after_days, detail, usage_bytes, version,
  pending, in_progress, completed, failed, cancelled
FROM vector_stores
WHERE tenant = :tenant AND id > :low AND id < :high AND gone = 0 AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :most;

-- name: vector_stores_down
-- Some of a tenant's vector stores, newest first.
SELECT id, name, created_at, last_active_at, expires_after_days, detail, usage_bytes, version,
  pending, in_progress, completed, failed, cancelled
FROM vector_stores
WHERE tenant = :tenant AND id > :low AND id < :high AND gone = 0 AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id DESC LIMIT :most;

-- name: number_of_store
-- The number of a vector store by id that has not expired, and how many files it has.
SELECT n, pending + in_progress + completed + failed + cancelled FROM vector_stores
WHERE tenant = :tenant AND id = :id AND gone = 0 AND (expires_at IS NULL OR expires_at > :now);

-- name: change_vector_store
-- Gives a vector store another name, another time to live and another detail.
UPDATE vector_stores SET name = :name, expires_after_days = :days, detail = :detail,
  last_active_at = max(last_active_at, :when), expires_at = max(last_active_at, :when) + :days * 86400
WHERE n = :n;

-- name: use_vector_store
-- Notes that a vector store was used.
UPDATE vector_stores SET last_active_at = :when, expires_at = :when + expires_after_days * 86400
WHERE n = :n AND last_active_at < :when;

-- name: lose_vector_store
-- Lets nobody find a vector store any more.
UPDATE vector_stores SET gone = 1 WHERE tenant = :tenant AND id = :id AND gone = 0
  AND (expires_at IS NULL OR expires_at > :now);

-- name: lose_expired_stores
-- Lets nobody find the vector stores whose time is up.
UPDATE vector_stores SET gone = 1 WHERE gone = 0 AND expires_at <= ?;

-- name: any_expired_store
-- Whether the time of any vector store is up.
SELECT 1 FROM vector_stores WHERE gone = 0 AND expires_at <= :now LIMIT 1;

-- name: lose_expired_store
-- Makes room for a vector store of the id of one whose time is up.
UPDATE vector_stores SET gone = 1 WHERE tenant = ? AND id = ? AND gone = 0 AND expires_at <= ?;

-- name: any_store_of_tenant
-- Whether a tenant has any vector store.
SELECT 1 FROM vector_stores WHERE tenant = :tenant AND gone = 0 LIMIT 1;

-- name: lose_stores_of_tenant
-- Lets nobody find the vector stores of a tenant.
UPDATE vector_stores SET gone = 1 WHERE tenant = ? AND gone = 0;

-- name: uploads_of
-- The numbers of those files of a tenant that are whole and have not expired, by id.
SELECT id, n FROM files WHERE tenant = :tenant AND id IN (SELECT value FROM json_each(:ids)) AND whole = 1
  AND (expires_at IS NULL OR expires_at > :now);

-- name: known_store_files
-- Those files of a vector store that have one of these ids, or one of these external ids.
SELECT file_id, n, external_id FROM store_files
WHERE store = :store AND status <> 'removed' AND file_id IN (SELECT value FROM json_each(:ids))
UNION
SELECT file_id, n, external_id FROM store_files
WHERE store = :store AND status <> 'removed' AND external_id IN (SELECT value FROM json_each(:names));

-- name: insert_store_file
-- Puts an uploaded file into a vector store.
INSERT INTO store_files (store, upload, file_id, created_at, status, attributes, detail, external_id, batch)
VALUES (?, ?, ?, ?, 'pending', ?, ?, ?, ?);

-- name: lose_store_file
-- Lets nobody find a file of a vector store any more.
UPDATE store_files SET status = 'removed' WHERE n = ? AND status <> 'removed';

-- name: renew_store_file
-- Puts a file into its vector store again, as it was but for its chunks.
INSERT INTO store_files (store, upload, file_id, created_at, status, attributes, detail, external_id, batch, attempts)
SELECT store, upload, file_id, created_at, ?, attributes, detail, external_id, batch, attempts
FROM store_files WHERE n = ?;

-- name: find_store_file
-- A file of a vector store by its id or its external id; the one with the id first.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM vector_stores AS v
JOIN store_files AS s ON s.n = coalesce(
  (SELECT n FROM store_files WHERE store = v.n AND file_id = :file AND status <> 'removed'),
  (SELECT n FROM store_files WHERE store = v.n AND external_id = :file AND status <> 'removed')
)
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE v.tenant = :tenant AND v.id = :id AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now);

-- name: store_file_by_number
-- A file of a vector store by its number.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE s.n = ?;

-- name: store_files_up
-- Some of the files of a vector store, by id upwards.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM vector_stores AS v
JOIN store_files AS s ON s.store = v.n AND s.status <> 'removed' AND s.file_id > :low AND s.file_id < :high
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE v.tenant = :tenant AND v.id = :id AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now)
  AND (:statuses IS NULL OR s.status IN (SELECT value FROM json_each(:statuses)))
  AND (:batch IS NULL OR b.id = :batch)
ORDER BY s.file_id LIMIT :most;

-- name: store_files_down
-- Some of the files of a vector store, by id downwards.
SELECT v.id, s.file_id, f.filename, s.created_at, s.status, s.attributes, s.detail, s.external_id, b.id,
  s.error_code, s.error_message, s.usage_bytes, s.chunks, s.revision, s.n
FROM vector_stores AS v
JOIN store_files AS s ON s.store = v.n AND s.status <> 'removed' AND s.file_id > :low AND s.file_id < :high
JOIN files AS f ON f.n = s.upload
LEFT JOIN batches AS b ON b.n = s.batch
WHERE v.tenant = :tenant AND v.id = :id AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now)
  AND (:statuses IS NULL OR s.status IN (SELECT value FROM json_each(:statuses)))
  AND (:batch IS NULL OR b.id = :batch)
ORDER BY s.file_id DESC LIMIT :most;

-- name: change_store_file
-- Gives a file other attributes.
UPDATE store_files SET attributes = ? WHERE n = ?;

-- name: note_change
-- Raises the version of the vector store of a file that is found.
UPDATE vector_stores SET version = version + 1
WHERE n = (SELECT store FROM store_files WHERE n = ? AND status = 'completed');

-- name: insert_file_batch
-- Begins a batch.
INSERT INTO batches (store, id, created_at) VALUES (?, ?, ?);

-- name: find_batch
-- A batch of a vector store.
SELECT b.id, b.created_at, b.is_cancelled, b.pending, b.in_progress, b.completed, b.failed, b.cancelled, b.n
FROM vector_stores AS v JOIN batches AS b ON b.store = v.n
WHERE v.tenant = :tenant AND v.id = :id AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now)
  AND b.id = :batch;

-- name: cancel_batch
-- Marks a batch as cancelled.
UPDATE batches SET is_cancelled = 1 WHERE n = ?;

-- name: waiting_of_batch
-- The files of a batch that have not been ingested, and how many chunks they have.
SELECT n, chunks FROM store_files WHERE batch = ? AND status IN ('pending', 'in_progress');

-- name: set_store_file_status
-- Gives a file of a vector store another status.
UPDATE store_files SET status = ? WHERE n = ?;

-- name: find_ingestion
-- The oldest file that waits for an owner, and how many chunks an earlier one has left.
SELECT s.n, s.chunks FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
WHERE s.status IN ('pending', 'in_progress')
  AND (s.status = 'pending' OR s.owner NOT IN (SELECT value FROM json_each(:owners)))
  AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now)
ORDER BY s.created_at, s.n LIMIT 1;

-- name: claim_ingestion
-- Gives a file to an owner.
UPDATE store_files SET status = 'in_progress', owner = ?, fence = fence + 1, attempts = attempts + 1 WHERE n = ?;

-- name: claim_of
-- Whose a claimed file is, and its claim.
SELECT v.tenant, s.fence, s.attempts FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store WHERE s.n = ?;

-- name: find_claim
-- The vector store of a file whose claim is good, whether it has a text index, and how many chunks the file has.
SELECT s.store, v.indexed, s.chunks FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
WHERE s.n = ? AND s.fence = ? AND s.status = 'in_progress' AND v.gone = 0;

-- name: set_indexed
-- Notes that the text index of a vector store is there.
UPDATE vector_stores SET indexed = ? WHERE n = ?;

-- name: insert_corpus_chunk
-- Adds a chunk; one that is there already stays.
INSERT OR IGNORE INTO corpus_chunks (n, heading, text, detail) VALUES (?, ?, ?, ?);

-- name: insert_corpus_vector
-- Adds the vector of a chunk.
INSERT INTO corpus_vectors (n, vector) VALUES (?, ?);

-- name: count_corpus_chunks
-- Notes chunks that came in, their bytes, and whether they are in the text index.
UPDATE store_files SET chunks = chunks + ?, usage_bytes = usage_bytes + ?, indexed = max(indexed, ?) WHERE n = ?;

-- name: complete_store_file
-- Lets the chunks of a file be found.
UPDATE store_files SET status = 'completed', owner = '' WHERE n = ?;

-- name: fail_store_file
-- Notes why a file could not be ingested.
UPDATE store_files SET status = 'failed', owner = '', error_code = ?, error_message = ? WHERE n = ?;

-- name: free_store_file
-- Lets a file wait for an owner again; the claim that was given back does not count.
UPDATE store_files SET status = 'pending', owner = '', attempts = attempts - 1 WHERE n = ?;

-- name: chunk_at
-- The chunks at some places of a vector store.
SELECT s.file_id, c.n & 16777215, c.heading, c.text, c.detail
FROM vector_stores AS v
JOIN json_each(:places) AS p
CROSS JOIN store_files AS s
  ON s.store = v.n AND s.file_id = p.value ->> 0 AND s.status <> 'removed' AND s.status = 'completed'
JOIN corpus_chunks AS c ON c.n = (s.n << 24) + (p.value ->> 1)
WHERE v.tenant = :tenant AND v.id = :id AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now);

-- name: found_files
-- Some of the files of a vector store that are found, from one on.
SELECT s.n, s.file_id FROM vector_stores AS v
JOIN store_files AS s ON s.store = v.n AND s.status <> 'removed' AND s.file_id >= :low
WHERE v.tenant = :tenant AND v.id = :id AND v.gone = 0 AND (v.expires_at IS NULL OR v.expires_at > :now)
  AND s.status = 'completed' AND s.chunks > 0
  AND (:files IS NULL OR s.file_id IN (SELECT value FROM json_each(:files)))
ORDER BY s.file_id LIMIT :most;

-- name: vectors_of
-- Some of the vectors of a file.
SELECT n & 16777215, vector FROM corpus_vectors WHERE n > :low AND n < :high ORDER BY n LIMIT :most;

-- name: chunks_of
-- Some of the chunks of a file.
SELECT n & 16777215, heading, text, detail FROM corpus_chunks WHERE n > :low AND n < :high ORDER BY n LIMIT :most;

-- name: searched_store
-- The number of a vector store that has a text index.
SELECT n FROM vector_stores
WHERE tenant = :tenant AND id = :id AND gone = 0 AND (expires_at IS NULL OR expires_at > :now) AND indexed = 1;

-- name: name_of_file
-- The id of a file of a vector store.
SELECT file_id FROM store_files WHERE n = ?;

-- name: gone_store
-- A vector store that is being removed, of this tenant where one is given.
SELECT n, indexed FROM vector_stores WHERE gone = 1 AND (:tenant IS NULL OR tenant = :tenant) ORDER BY n LIMIT 1;

-- name: gone_store_file
-- A file that is taken out of a vector store that stays, and whether its chunks are in the text index.
SELECT s.n, s.store, s.indexed FROM store_files AS s JOIN vector_stores AS v ON v.n = s.store
WHERE s.status = 'removed' AND v.gone = 0 LIMIT 1;

-- name: file_of_gone_store
-- A file of a vector store that is being removed.
SELECT n FROM store_files WHERE store = ? LIMIT 1;

-- name: some_chunks_of
-- The numbers and words of some of the chunks of a file.
SELECT n, heading, text FROM corpus_chunks WHERE n BETWEEN ? AND ? LIMIT ?;

-- name: delete_corpus_chunk
-- Removes a chunk.
DELETE FROM corpus_chunks WHERE n = ?;

-- name: delete_corpus_vector
-- Removes the vector of a chunk.
DELETE FROM corpus_vectors WHERE n = ?;

-- name: delete_store_file
-- Removes the row of a file of a vector store.
DELETE FROM store_files WHERE n = ?;

-- name: delete_batches_of
-- Removes some of the batches of a vector store.
DELETE FROM batches WHERE n IN (SELECT n FROM batches WHERE store = ? LIMIT ?);

-- name: delete_vector_store
-- Removes the row of a vector store.
DELETE FROM vector_stores WHERE n = ?;
