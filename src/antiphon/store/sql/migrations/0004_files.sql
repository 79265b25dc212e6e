-- Uploaded files, by tenant and id, and their contents in chunks.

CREATE TABLE files (
  n INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at INTEGER NOT NULL,  -- seconds since the epoch, as are the two below
  expires_at INTEGER,           -- NULL: never
  due_at REAL,                  -- when the sweep removes it: NULL is never; a file that is not whole has a time too
  whole INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL,       -- of the plain content
  purpose TEXT NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  filename BLOB NOT NULL        -- UTF-8
);
CREATE UNIQUE INDEX files_by_id ON files (tenant, id);
CREATE INDEX files_by_purpose ON files (tenant, purpose, id, bytes);
CREATE INDEX files_by_end ON files (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE file_chunks (
  n INTEGER PRIMARY KEY,
  file INTEGER NOT NULL,        -- the file's n
  pos INTEGER NOT NULL,         -- 0, 1, …
  body BLOB NOT NULL
);
CREATE UNIQUE INDEX file_chunks_by_file ON file_chunks (file, pos);
