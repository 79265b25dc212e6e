-- The whole store. Rows refer to each other by `n`, a number of the database's own: ids are 49 characters long, and each
-- would otherwise stand in four places. Every look-up from outside goes by (tenant, id); `n` never leaves the database.
-- Bodies are bytea, since no text may hold U+0000, and nothing is ordered by a collation. Times without another word
-- are seconds since the epoch by the clock of the server that wrote them.

CREATE TABLE responses (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  parent_id text COLLATE "C",
  parent bigint,                    -- the parent's n, where the parent was still kept when this row began
  conversation_id text COLLATE "C",
  status text COLLATE "C" NOT NULL,
  running boolean NOT NULL GENERATED ALWAYS AS (status IN ('queued', 'in_progress')) STORED,
  owner text COLLATE "C" NOT NULL DEFAULT '',
  fence integer NOT NULL DEFAULT 1,
  format smallint NOT NULL DEFAULT 1,
  events_expired boolean NOT NULL DEFAULT false,
  created_at bigint NOT NULL,       -- as the response says it
  completed_at bigint,
  expires_at double precision NOT NULL DEFAULT 'Infinity',
  keep_seconds double precision,    -- of a temporary response: how long it is kept after its end
  used_at double precision NOT NULL,-- later uses are noted only where limits need their order
  log_ended_at double precision,    -- since when the event log has been whole; NULL: there is none to remove
  gone_at double precision,         -- no look-up by id finds it any more
  gone boolean NOT NULL GENERATED ALWAYS AS (gone_at IS NOT NULL) STORED,
  removed_at double precision,      -- nothing needs it any more: it is hidden, and erased after a time of grace
  removed boolean NOT NULL GENERATED ALWAYS AS (removed_at IS NOT NULL) STORED,
  snapshot bytea NOT NULL
) WITH (fillfactor = 80);
-- The conditions of these indexes are booleans, of which the planner expects half to be true while it has no statistics;
-- of a column that is NULL it expects next to none, and would read a whole index for one row.
CREATE UNIQUE INDEX responses_by_id ON responses (tenant, id) WHERE NOT removed;
CREATE INDEX responses_removed_by_id ON responses (tenant, id) WHERE removed;
CREATE INDEX responses_by_parent ON responses (parent) WHERE parent IS NOT NULL;
CREATE INDEX responses_by_expiry ON responses (expires_at)
  WHERE NOT gone AND NOT running AND expires_at < 'Infinity';
CREATE INDEX responses_by_use ON responses (used_at, n) WHERE NOT gone AND NOT running;
CREATE INDEX responses_running ON responses (n) WHERE NOT gone AND running;
CREATE INDEX responses_gone ON responses (n) WHERE gone AND NOT removed;
CREATE INDEX responses_removed ON responses (removed_at) WHERE removed;
CREATE INDEX responses_by_log_end ON responses (log_ended_at) WHERE log_ended_at IS NOT NULL;
-- The lock of a conversation: one response at a time runs in it.
CREATE UNIQUE INDEX responses_running_in_conversation ON responses (tenant, conversation_id)
  WHERE conversation_id IS NOT NULL AND NOT gone AND running;

-- What another owner needs to run a response; a row goes when its response ends.
CREATE TABLE plans (
  response bigint PRIMARY KEY,
  body bytea NOT NULL
);

CREATE TABLE items (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  body bytea NOT NULL
);
CREATE UNIQUE INDEX items_by_id ON items (tenant, id);

CREATE TABLE response_items (
  response bigint NOT NULL,
  role smallint NOT NULL,           -- 0 in, 1 out
  pos integer NOT NULL,
  item bigint NOT NULL,
  PRIMARY KEY (response, role, pos)
);
CREATE INDEX response_items_by_item ON response_items (item);

CREATE TABLE event_batches (
  response bigint NOT NULL,
  first_seq integer NOT NULL,
  last_seq integer NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  offsets bytea NOT NULL,           -- little-endian 32-bit numbers: where in the body each event begins
  body bytea NOT NULL,
  PRIMARY KEY (response, first_seq)
);

-- What the engine drew to make the events of a batch; a row goes when its response ends.
CREATE TABLE samples (
  response bigint NOT NULL,
  first_seq integer NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (response, first_seq)
);

CREATE TABLE conversations (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  created_at bigint NOT NULL,       -- as the conversation says it
  added_at double precision NOT NULL,
  used_at double precision NOT NULL,-- as for responses
  next_pos bigint NOT NULL DEFAULT 0,
  metadata bytea NOT NULL
);
CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE INDEX conversations_by_addition ON conversations (added_at);
CREATE INDEX conversations_by_use ON conversations (used_at, n);

CREATE TABLE conversation_items (
  conversation bigint NOT NULL,
  pos bigint NOT NULL,
  item bigint NOT NULL,
  PRIMARY KEY (conversation, pos)
);
CREATE UNIQUE INDEX conversation_items_by_item ON conversation_items (item, conversation);

CREATE TABLE idempotency (
  tenant text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  digest bytea NOT NULL,
  response_id text COLLATE "C" NOT NULL,
  expires_at double precision NOT NULL,
  PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

CREATE TABLE webhook_deliveries (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  endpoint text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  due_at double precision NOT NULL,
  body bytea NOT NULL
);
CREATE UNIQUE INDEX webhook_deliveries_by_id ON webhook_deliveries (tenant, id);
CREATE INDEX webhook_deliveries_by_due ON webhook_deliveries (due_at, n);

CREATE TABLE api_keys (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL UNIQUE,
  tenant text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  digest bytea NOT NULL UNIQUE,     -- SHA-256 of the secret
  created_at bigint NOT NULL,
  limits bytea NOT NULL,
  revoked_at bigint
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant);

CREATE TABLE codec_keys (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL UNIQUE,
  secret bytea NOT NULL,
  created_at bigint NOT NULL
);

CREATE TABLE tenants (
  tenant text COLLATE "C" PRIMARY KEY,
  key bytea NOT NULL                -- wrapped
);

-- The servers that run responses. Each holds the advisory lock of its `lock_key` as long as it is connected.
CREATE TABLE owners (
  id text COLLATE "C" PRIMARY KEY,
  counter bigint NOT NULL DEFAULT 0,
  lock_key bigint NOT NULL,
  server_started timestamptz NOT NULL  -- of the database server that it took its lock from
);
