-- The statements of the PostgreSQL store about uploaded files.

-- name: lock_files_of
-- Lets one server at a time begin a file of a tenant, up to the end of its transaction.
SELECT pg_advisory_xact_lock(hashtextextended('files of ' || :tenant::text, 0));

-- name: files_held
-- How many other files a tenant has, and their bytes; those that are coming in count.
SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM files WHERE tenant = :tenant AND id <> :id;

-- name: count_files
-- How many files there are, of every tenant.
SELECT count(*) FROM files;

-- name: insert_file
-- Begins a file, unless it is there.
INSERT INTO files (tenant, id, created_at, expires_at, due_at, bytes, purpose, filename)
VALUES (:tenant, :id, :created_at, :expires_at, :due_at, :bytes, :purpose, :filename)
ON CONFLICT DO NOTHING;

-- name: insert_file_chunk
-- Adds a chunk to a file that is coming in, unless it is there.
WITH held AS (
  SELECT n FROM files WHERE tenant = :tenant AND id = :id AND NOT whole FOR KEY SHARE
), added AS (
  INSERT INTO file_chunks (file, pos, body) SELECT n, :pos, :body FROM held
  ON CONFLICT DO NOTHING
)
SELECT 1 FROM held;

-- name: finish_file
-- Makes a file whole.
UPDATE files SET whole = true, due_at = expires_at WHERE tenant = :tenant AND id = :id AND NOT whole RETURNING 1;

-- name: find_file
-- A file that is whole and has not expired.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND id = :id AND whole AND (expires_at IS NULL OR expires_at > :now::double precision);

-- name: files_up
-- Some of a tenant's files, oldest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND id > :after AND whole AND (expires_at IS NULL OR expires_at > :now::double precision)
ORDER BY id LIMIT :most;

-- name: files_down
-- Some of a tenant's files, newest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND id < :after AND whole
  AND (expires_at IS NULL OR expires_at > :now::double precision)
ORDER BY id DESC LIMIT :most;

-- name: files_of_purpose_up
-- Some of a tenant's files of one purpose, oldest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND purpose = :purpose AND id > :after AND whole
  AND (expires_at IS NULL OR expires_at > :now::double precision)
ORDER BY id LIMIT :most;

-- name: files_of_purpose_down
-- Some of a tenant's files of one purpose, newest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND purpose = :purpose AND id < :after AND whole
  AND (expires_at IS NULL OR expires_at > :now::double precision)
ORDER BY id DESC LIMIT :most;

-- name: file_chunks
-- Some of the chunks of a file that is whole and has not expired, in order.
SELECT body FROM file_chunks
WHERE file = (
  SELECT n FROM files
  WHERE tenant = :tenant AND id = :id AND whole AND (expires_at IS NULL OR expires_at > :now::double precision))
  AND pos >= :first
ORDER BY pos LIMIT :most;

-- name: delete_file
-- Removes a file with its chunks; whether it could be found.
DELETE FROM files WHERE tenant = :tenant AND id = :id
RETURNING NOT whole OR expires_at IS NULL OR expires_at > :now::double precision;

-- name: delete_due_files
-- Removes some of the files whose time is up or that did not come in whole, with their chunks.
DELETE FROM files WHERE n = ANY (ARRAY(
  SELECT n FROM files WHERE due_at <= :now ORDER BY due_at LIMIT :most FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: delete_files_of
-- Removes some of the files of a tenant, with their chunks.
DELETE FROM files WHERE n = ANY (ARRAY(SELECT n FROM files WHERE tenant = :tenant LIMIT :most FOR UPDATE))
RETURNING 1;
