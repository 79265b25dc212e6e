-- Vector stores by tenant and id, the files in them, their chunks and vectors. The text index of a vector store is a
-- table of its own, named after its number, which is made with its first chunk (ADR 15).

CREATE TABLE vector_stores (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  created_at INTEGER NOT NULL,        -- seconds since the epoch, as are all times here
  last_active_at INTEGER NOT NULL,
  expires_after_days INTEGER,         -- NULL: never
  expires_at INTEGER,                 -- from the two above
  detail BLOB NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  gone INTEGER NOT NULL DEFAULT 0,    -- 1: nobody finds it, and it is removed in steps
  indexed INTEGER NOT NULL DEFAULT 0, -- whether its text index is there
  version INTEGER NOT NULL DEFAULT 0,
  usage_bytes INTEGER NOT NULL DEFAULT 0,
  pending INTEGER NOT NULL DEFAULT 0, -- its files by status, counted by the triggers below
  in_progress INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX vector_stores_by_id ON vector_stores (tenant, id) WHERE gone = 0;
CREATE INDEX vector_stores_by_name ON vector_stores (tenant, name, id) WHERE gone = 0;
CREATE INDEX vector_stores_by_end ON vector_stores (expires_at) WHERE gone = 0 AND expires_at IS NOT NULL;
CREATE INDEX vector_stores_gone ON vector_stores (n) WHERE gone = 1;

CREATE TABLE batches (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  store INTEGER NOT NULL,             -- the vector store's n
  id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  is_cancelled INTEGER NOT NULL DEFAULT 0,
  pending INTEGER NOT NULL DEFAULT 0,
  in_progress INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX batches_by_id ON batches (store, id);

CREATE TABLE store_files (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  store INTEGER NOT NULL,             -- the vector store's n
  upload INTEGER NOT NULL,            -- the uploaded file's n
  file_id TEXT NOT NULL,              -- and its id
  created_at INTEGER NOT NULL,
  status TEXT NOT NULL,               -- 'removed': nobody finds it, and it is removed in steps
  attributes BLOB NOT NULL,
  detail BLOB NOT NULL,
  external_id TEXT,
  batch INTEGER,                      -- the batch's n
  error_code TEXT,
  error_message TEXT,
  usage_bytes INTEGER NOT NULL DEFAULT 0,
  chunks INTEGER NOT NULL DEFAULT 0,
  revision INTEGER NOT NULL DEFAULT 0,
  indexed INTEGER NOT NULL DEFAULT 0, -- whether its chunks are in the text index
  owner TEXT NOT NULL DEFAULT '',     -- who ingests it
  fence INTEGER NOT NULL DEFAULT 0,   -- raised by each claim
  attempts INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX store_files_by_id ON store_files (store, file_id) WHERE status <> 'removed';
CREATE UNIQUE INDEX store_files_by_name ON store_files (store, external_id)
WHERE status <> 'removed' AND external_id IS NOT NULL;
CREATE INDEX store_files_by_store ON store_files (store);
CREATE INDEX store_files_by_batch ON store_files (batch, file_id) WHERE batch IS NOT NULL;
CREATE INDEX store_files_by_upload ON store_files (upload);
CREATE INDEX store_files_waiting ON store_files (created_at, n) WHERE status IN ('pending', 'in_progress');
CREATE INDEX store_files_hidden ON store_files (store, n) WHERE status <> 'completed' AND chunks > 0;
CREATE INDEX store_files_removed ON store_files (n) WHERE status = 'removed';

-- The n of a chunk is that of its file in the store, times 2^24, and its index: the text index knows by it whose it is.
CREATE TABLE corpus_chunks (
  n INTEGER PRIMARY KEY,
  heading TEXT NOT NULL,
  text TEXT NOT NULL,
  detail BLOB NOT NULL
);
CREATE TABLE corpus_vectors (
  n INTEGER PRIMARY KEY,              -- the chunk's
  vector BLOB NOT NULL
);

CREATE TRIGGER store_files_added AFTER INSERT ON store_files BEGIN
  UPDATE vector_stores SET
    pending = pending + (NEW.status = 'pending'),
    failed = failed + (NEW.status = 'failed'),
    cancelled = cancelled + (NEW.status = 'cancelled')
  WHERE n = NEW.store;
  UPDATE batches SET
    pending = pending + (NEW.status = 'pending'),
    failed = failed + (NEW.status = 'failed'),
    cancelled = cancelled + (NEW.status = 'cancelled')
  WHERE n = NEW.batch;
END;

CREATE TRIGGER store_files_changed AFTER UPDATE OF status ON store_files WHEN OLD.status <> NEW.status BEGIN
  UPDATE vector_stores SET
    pending = pending + (NEW.status = 'pending') - (OLD.status = 'pending'),
    in_progress = in_progress + (NEW.status = 'in_progress') - (OLD.status = 'in_progress'),
    completed = completed + (NEW.status = 'completed') - (OLD.status = 'completed'),
    failed = failed + (NEW.status = 'failed') - (OLD.status = 'failed'),
    cancelled = cancelled + (NEW.status = 'cancelled') - (OLD.status = 'cancelled'),
    usage_bytes = usage_bytes + NEW.usage_bytes * ((NEW.status = 'completed') - (OLD.status = 'completed')),
    version = version + (NEW.status = 'completed' OR OLD.status = 'completed')
  WHERE n = NEW.store;
  UPDATE batches SET
    pending = pending + (NEW.status = 'pending') - (OLD.status = 'pending'),
    in_progress = in_progress + (NEW.status = 'in_progress') - (OLD.status = 'in_progress'),
    completed = completed + (NEW.status = 'completed') - (OLD.status = 'completed'),
    failed = failed + (NEW.status = 'failed') - (OLD.status = 'failed'),
    cancelled = cancelled + (NEW.status = 'cancelled') - (OLD.status = 'cancelled')
  WHERE n = NEW.batch;
  UPDATE store_files SET revision = (SELECT version FROM vector_stores WHERE n = NEW.store)
  WHERE n = NEW.n AND NEW.status = 'completed';
END;

-- An uploaded file that goes is taken out of every vector store.
CREATE TRIGGER files_condemned AFTER UPDATE OF whole ON files WHEN NEW.whole = 2 BEGIN
  UPDATE store_files SET status = 'removed' WHERE upload = NEW.n AND status <> 'removed';
END;
CREATE TRIGGER files_deleted AFTER DELETE ON files BEGIN
  UPDATE store_files SET status = 'removed' WHERE upload = OLD.n AND status <> 'removed';
END;
