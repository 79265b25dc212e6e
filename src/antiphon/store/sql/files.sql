-- The statements of the SQLite store about uploaded files.

-- name: held_of_tenant
-- How many files a tenant has, and their bytes; those that are coming in count.
SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE tenant = ?;

-- name: count_files
-- How many files there are, of every tenant.
SELECT count(*) FROM files;

-- name: insert_file
-- Begins a file.
INSERT INTO files (tenant, id, created_at, expires_at, due_at, bytes, purpose, filename)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_file_chunk
-- Adds a chunk to a file that is coming in.
INSERT INTO file_chunks (file, pos, body)
SELECT n, ?, ? FROM files WHERE tenant = ? AND id = ? AND whole = 0;

-- name: finish_file
-- Makes a file whole.
UPDATE files SET whole = 1, due_at = expires_at WHERE tenant = ? AND id = ? AND whole = 0;

-- name: find_file
-- A file that is whole and has not expired.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND id = :id AND whole = 1 AND (expires_at IS NULL OR expires_at > :now);

-- name: files_up
-- Some of a tenant's files, oldest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND id > :after AND whole = 1 AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :most;

-- name: files_down
-- Some of a tenant's files, newest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND id < :after AND whole = 1 AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id DESC LIMIT :most;

-- name: files_of_purpose_up
-- Some of a tenant's files of one purpose, oldest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND purpose = :purpose AND id > :after AND whole = 1
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :most;

-- name: files_of_purpose_down
-- Some of a tenant's files of one purpose, newest first.
SELECT id, created_at, expires_at, bytes, purpose, filename FROM files
WHERE tenant = :tenant AND purpose = :purpose AND id < :after AND whole = 1
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id DESC LIMIT :most;

-- name: file_chunks
-- Some of the chunks of a file that is whole and has not expired, in order.
SELECT c.body FROM files AS f JOIN file_chunks AS c ON c.file = f.n
WHERE f.tenant = :tenant AND f.id = :id AND f.whole = 1 AND (f.expires_at IS NULL OR f.expires_at > :now)
  AND c.pos >= :first
ORDER BY c.pos LIMIT :most;

-- name: find_any_file
-- The number of a file, whole or not, and whether it can be found.
SELECT n, whole = 0 OR expires_at IS NULL OR expires_at > ? FROM files WHERE tenant = ? AND id = ? AND whole <> 2;

-- name: condemn_file
-- Lets nobody find a file any more; the sweep removes what is left of it where whoever deletes it does not come to that.
UPDATE files SET whole = 2, due_at = 0 WHERE n = ?;

-- name: condemned_file
-- A file that is being removed.
SELECT n FROM files WHERE n = :file AND whole = 2;

-- name: find_due_file
-- A file whose time is up, or that did not come in whole.
SELECT n FROM files WHERE due_at <= :now ORDER BY due_at LIMIT 1;

-- name: file_of_tenant
-- A file of a tenant.
SELECT n FROM files WHERE tenant = :tenant LIMIT 1;

-- name: delete_some_chunks
-- Removes some of the chunks of a file.
DELETE FROM file_chunks WHERE n IN (SELECT n FROM file_chunks WHERE file = ? ORDER BY pos LIMIT ?);

-- name: delete_file
-- Removes the row of a file.
DELETE FROM files WHERE n = ?;
