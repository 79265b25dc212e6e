-- Vector stores by tenant and id, the files in them, their chunks and vectors, and the words of their chunks (ADR 15).

CREATE TABLE vector_stores (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,             -- seconds since the epoch, as are all times here
  last_active_at bigint NOT NULL,
  expires_after_days integer,             -- NULL: never
  expires_at bigint,                      -- from the two above
  gone boolean NOT NULL DEFAULT false,    -- nobody finds it, and it is removed in steps
  version bigint NOT NULL DEFAULT 0,
  usage_bytes bigint NOT NULL DEFAULT 0,
  texts bigint NOT NULL DEFAULT 0,        -- chunks with words that are found, and how many words they have
  words bigint NOT NULL DEFAULT 0,
  pending integer NOT NULL DEFAULT 0,
  in_progress integer NOT NULL DEFAULT 0,
  completed integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  cancelled integer NOT NULL DEFAULT 0,
  format smallint NOT NULL DEFAULT 1,
  detail bytea NOT NULL
);
CREATE UNIQUE INDEX vector_stores_by_id ON vector_stores (tenant, id) WHERE NOT gone;
CREATE INDEX vector_stores_by_name ON vector_stores (tenant, name, id) WHERE NOT gone;
CREATE INDEX vector_stores_by_end ON vector_stores (expires_at) WHERE NOT gone AND expires_at IS NOT NULL;
CREATE INDEX vector_stores_gone ON vector_stores (n) WHERE gone;

CREATE TABLE batches (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  store bigint NOT NULL,                  -- the vector store's n
  id text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  is_cancelled boolean NOT NULL DEFAULT false,
  pending integer NOT NULL DEFAULT 0,
  in_progress integer NOT NULL DEFAULT 0,
  completed integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  cancelled integer NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX batches_by_id ON batches (store, id);

CREATE TABLE store_files (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  store bigint NOT NULL,                  -- the vector store's n
  upload bigint NOT NULL,                 -- the uploaded file's n
  file_id text COLLATE "C" NOT NULL,      -- and its id
  created_at bigint NOT NULL,
  status text COLLATE "C" NOT NULL,       -- 'removed': nobody finds it, and it is removed in steps
  external_id text COLLATE "C",
  batch bigint,                           -- the batch's n
  error_code text COLLATE "C",
  error_message text COLLATE "C",
  usage_bytes bigint NOT NULL DEFAULT 0,
  chunks integer NOT NULL DEFAULT 0,
  revision bigint NOT NULL DEFAULT 0,
  counted boolean NOT NULL DEFAULT false, -- whether corpus_terms counts the words of its chunks
  owner text COLLATE "C" NOT NULL DEFAULT '',
  claim text COLLATE "C" NOT NULL DEFAULT '',
  fence integer NOT NULL DEFAULT 0,       -- raised by each claim
  attempts integer NOT NULL DEFAULT 0,
  format smallint NOT NULL DEFAULT 1,
  attributes bytea NOT NULL,
  detail bytea NOT NULL
);
CREATE UNIQUE INDEX store_files_by_id ON store_files (store, file_id) WHERE status <> 'removed';
CREATE UNIQUE INDEX store_files_by_name ON store_files (store, external_id)
WHERE status <> 'removed' AND external_id IS NOT NULL;
CREATE INDEX store_files_by_store ON store_files (store);
CREATE INDEX store_files_by_batch ON store_files (batch, file_id) WHERE batch IS NOT NULL;
CREATE INDEX store_files_by_upload ON store_files (upload);
CREATE INDEX store_files_waiting ON store_files (created_at, n) WHERE status IN ('pending', 'in_progress');
CREATE INDEX store_files_claimed ON store_files (claim) WHERE claim <> '';
CREATE INDEX store_files_removed ON store_files (n) WHERE status = 'removed';

CREATE TABLE corpus_chunks (
  file bigint NOT NULL,                   -- the n of the file in the store
  pos integer NOT NULL,                   -- 0, 1, …
  heading text NOT NULL,
  text text NOT NULL,
  detail bytea NOT NULL,
  PRIMARY KEY (file, pos)
);
CREATE TABLE corpus_vectors (
  file bigint NOT NULL,
  pos integer NOT NULL,
  vector bytea NOT NULL,
  PRIMARY KEY (file, pos)
);

ALTER TABLE corpus_vectors ALTER COLUMN vector SET STORAGE EXTERNAL;

-- The words of a chunk, and among them '#' with the n of its vector store: with it a search finds those of one only.
CREATE TABLE corpus_words (
  file bigint NOT NULL,
  pos integer NOT NULL,
  length integer NOT NULL,                -- how many words they are
  words tsvector NOT NULL,
  PRIMARY KEY (file, pos)
);
CREATE INDEX corpus_words_by_word ON corpus_words USING gin (words) WITH (gin_pending_list_limit = 512);

-- How many chunks of a vector store that are found hold a word.
CREATE TABLE corpus_terms (
  store bigint NOT NULL,
  word text COLLATE "C" NOT NULL,
  chunks bigint NOT NULL,
  PRIMARY KEY (store, word)
);

CREATE FUNCTION antiphon_count_store_file() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE vector_stores SET
    pending = pending + (NEW.status = 'pending')::int - (OLD.status IS NOT DISTINCT FROM 'pending')::int,
    in_progress = in_progress + (NEW.status = 'in_progress')::int - (OLD.status IS NOT DISTINCT FROM 'in_progress')::int,
    completed = completed + (NEW.status = 'completed')::int - (OLD.status IS NOT DISTINCT FROM 'completed')::int,
    failed = failed + (NEW.status = 'failed')::int - (OLD.status IS NOT DISTINCT FROM 'failed')::int,
    cancelled = cancelled + (NEW.status = 'cancelled')::int - (OLD.status IS NOT DISTINCT FROM 'cancelled')::int,
    usage_bytes = usage_bytes
      + NEW.usage_bytes * ((NEW.status = 'completed')::int - (OLD.status IS NOT DISTINCT FROM 'completed')::int),
    version = version + (NEW.status = 'completed' OR OLD.status IS NOT DISTINCT FROM 'completed')::int
  WHERE n = NEW.store;
  UPDATE batches SET
    pending = pending + (NEW.status = 'pending')::int - (OLD.status IS NOT DISTINCT FROM 'pending')::int,
    in_progress = in_progress + (NEW.status = 'in_progress')::int - (OLD.status IS NOT DISTINCT FROM 'in_progress')::int,
    completed = completed + (NEW.status = 'completed')::int - (OLD.status IS NOT DISTINCT FROM 'completed')::int,
    failed = failed + (NEW.status = 'failed')::int - (OLD.status IS NOT DISTINCT FROM 'failed')::int,
    cancelled = cancelled + (NEW.status = 'cancelled')::int - (OLD.status IS NOT DISTINCT FROM 'cancelled')::int
  WHERE n = NEW.batch;
  UPDATE store_files SET revision = (SELECT v.version FROM vector_stores AS v WHERE v.n = NEW.store)
  WHERE n = NEW.n AND NEW.status = 'completed';
  RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER store_files_added AFTER INSERT ON store_files
FOR EACH ROW EXECUTE FUNCTION antiphon_count_store_file();
CREATE OR REPLACE TRIGGER store_files_changed AFTER UPDATE OF status ON store_files
FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION antiphon_count_store_file();

-- An uploaded file that goes is taken out of every vector store.
CREATE FUNCTION antiphon_lose_store_files() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE store_files SET status = 'removed' WHERE upload = OLD.n AND status <> 'removed';
  RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER files_deleted AFTER DELETE ON files
FOR EACH ROW EXECUTE FUNCTION antiphon_lose_store_files();
