-- Uploaded files, by tenant and id, and their contents in chunks.

CREATE TABLE files (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,  -- seconds since the epoch, as are the two below
  expires_at bigint,           -- NULL: never
  due_at double precision,     -- when the sweep removes it: NULL is never; a file that is not whole has a time too
  whole boolean NOT NULL DEFAULT false,
  bytes bigint NOT NULL,       -- of the plain content
  purpose text COLLATE "C" NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  filename bytea NOT NULL      -- UTF-8
);
CREATE UNIQUE INDEX files_by_id ON files (tenant, id);
CREATE INDEX files_by_purpose ON files (tenant, purpose, id);
CREATE INDEX files_by_end ON files (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE file_chunks (
  file bigint NOT NULL REFERENCES files (n) ON DELETE CASCADE,
  pos integer NOT NULL,        -- 0, 1, …
  body bytea NOT NULL,
  PRIMARY KEY (file, pos)
);
