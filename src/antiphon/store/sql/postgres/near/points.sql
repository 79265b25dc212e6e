-- The statements of the PostgreSQL store about vectors that are searched in the database, by the extension pgvector. The
-- tables are there only where it is, and hold nothing that could not be made again of corpus_vectors.

-- name: points_there
-- The number of the table of vectors, whether its column is there, and whether the extension can be had.
SELECT to_regclass('corpus_points')::oid::bigint,
  EXISTS (
    SELECT 1 FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass('corpus_points') AND a.attname = 'point' AND NOT a.attisdropped),
  EXISTS (SELECT 1 FROM pg_available_extensions AS e WHERE e.name = 'vector');

-- name: lock_points
-- Lets one server at a time make the tables, up to the end of its transaction.
SELECT pg_advisory_xact_lock(hashtextextended('vectors of antiphon', 0));

-- name: add_extension
-- Adds the extension, unless it is there.
CREATE EXTENSION IF NOT EXISTS vector;

-- name: drop_points
-- Takes the tables away: the extension took their column away, and what they say is not true any more.
DROP TABLE IF EXISTS corpus_points, corpus_pointed;

-- name: make_points
-- Makes the table of vectors. Whatever removes a vector removes it here; up to this length a row is kept in one piece.
CREATE TABLE corpus_points (
  file bigint NOT NULL,
  pos integer NOT NULL,
  store bigint NOT NULL,
  width integer NOT NULL,
  point vector NOT NULL,
  PRIMARY KEY (file, pos),
  FOREIGN KEY (file, pos) REFERENCES corpus_vectors ON DELETE CASCADE
) WITH (toast_tuple_target = 8160);

-- name: make_points_index
-- Makes the index by which the vectors of one vector store are found.
CREATE INDEX corpus_points_by_store ON corpus_points (store, width);

-- name: make_pointed
-- Makes the table of the files all of whose vectors are there: how many there are of each length.
CREATE TABLE corpus_pointed (
  file bigint NOT NULL REFERENCES store_files (n) ON DELETE CASCADE,
  width integer NOT NULL,
  points bigint NOT NULL,
  PRIMARY KEY (file, width)
);

-- name: store_to_point
-- A vector store by id that has not expired: its number and its version, and the number of the table of vectors.
SELECT v.n, v.version, to_regclass('corpus_points')::oid::bigint FROM vector_stores AS v
WHERE v.tenant = :tenant AND v.id = :id AND NOT v.gone
  AND (v.expires_at IS NULL OR v.expires_at > :now::double precision);

-- name: unpointed
-- Some of the files of a vector store that are found and whose vectors are not all there, and how many chunks they have.
SELECT s.n, s.chunks FROM store_files AS s
WHERE s.store = :store AND s.status = 'completed'
  AND NOT EXISTS (SELECT 1 FROM corpus_pointed AS p WHERE p.file = s.n)
ORDER BY s.n LIMIT :most;

-- name: vectors_to_point
-- Some of the vectors of a file, beyond a place.
SELECT pos, vector FROM corpus_vectors WHERE file = :file AND pos > :after::integer ORDER BY pos LIMIT :most;

-- name: insert_points
-- Adds vectors of one length, that come one after the other.
INSERT INTO corpus_points (file, pos, store, width, point)
SELECT :file::bigint, p.pos, :store::bigint, :width::integer,
  ((:numbers::real[])[(p.at - 1) * :width::integer + 1 : p.at * :width::integer])::vector
FROM unnest(:places::integer[]) WITH ORDINALITY AS p (pos, at)
WHERE EXISTS (SELECT 1 FROM corpus_vectors AS w WHERE w.file = :file::bigint AND w.pos = p.pos)
ON CONFLICT DO NOTHING;

-- name: insert_pointed
-- Notes that all vectors of a file are there.
INSERT INTO corpus_pointed (file, width, points)
SELECT s.n, c.width, c.points FROM store_files AS s
CROSS JOIN unnest(:widths::integer[], :counts::bigint[]) AS c (width, points)
WHERE s.n = :file
ON CONFLICT DO NOTHING;

-- name: count_points
-- How many vectors of a vector store that are found are there, by their length.
SELECT p.width, sum(p.points)::bigint FROM store_files AS s JOIN corpus_pointed AS p ON p.file = s.n
WHERE s.store = :store AND s.status = 'completed' AND p.points > 0 GROUP BY p.width;

-- name: near_all
-- The vectors of a vector store that are nearest to one, all of them compared.
SELECT s.file_id, p.pos, -p.distance FROM (
  SELECT w.file, w.pos, w.point <#> (:asked::real[])::vector AS distance FROM corpus_points AS w
  WHERE w.store = :store AND w.width = :width
    AND w.file NOT IN (SELECT x.n FROM store_files AS x WHERE x.status = 'removed' AND x.store = :store)
  ORDER BY distance FETCH FIRST (:most::bigint) ROWS WITH TIES
) AS p CROSS JOIN LATERAL (
  SELECT f.file_id FROM store_files AS f WHERE f.n = p.file AND f.status = 'completed' LIMIT 1
) AS s
ORDER BY p.distance, s.file_id, p.pos LIMIT :most::bigint;

-- name: near_some
-- Of the vectors of some files of a vector store those that are nearest to one, all of them compared.
SELECT s.file_id, w.pos, -(w.point <#> (:asked::real[])::vector) AS score
FROM store_files AS s JOIN corpus_points AS w ON w.file = s.n AND w.width = :width
WHERE s.store = :store AND s.status = 'completed' AND s.file_id = ANY (:files::text[])
ORDER BY score DESC, s.file_id, w.pos LIMIT :most::bigint;

-- name: walk_with
-- Says for a transaction how far a search by a graph looks, and that the graph gives the order.
SELECT set_config('hnsw.ef_search', :breadth::text, true), set_config('enable_sort', 'off', true);

-- name: graphs
-- The graphs that there are, and whether each is whole.
SELECT c.relname::text, i.indisvalid FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass('corpus_points') AND c.relname LIKE 'corpus\_points\_near\_%';

-- name: lost_graphs
-- The graphs of vector stores that are not there any more.
SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass('corpus_points') AND c.relname LIKE 'corpus\_points\_near\_%'
  AND NOT EXISTS (
    SELECT 1 FROM vector_stores AS v WHERE v.n::text = split_part(c.relname::text, '_', 4) AND NOT v.gone);

-- name: try_lock_graphs
-- Lets one connection at a time make or drop a graph.
SELECT pg_try_advisory_lock(hashtextextended('graphs of antiphon', 0));

-- name: room_for_graph
-- Says how a connection makes a graph: with the memory that one of 100,000 vectors needs, and by itself, since workers
-- share memory of which a container has little.
SELECT set_config('max_parallel_maintenance_workers', '0', false),
  CASE WHEN pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('256MB')
    THEN set_config('maintenance_work_mem', '256MB', false) END;
