-- What outlives a process: who runs a response and with what fence, conversations, keys, and webhooks to send.

-- Made anew, since what every write looks at should stand before the object, which may fill many pages.
CREATE TABLE responses_anew (
  n INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  parent_id TEXT,
  parent INTEGER,               -- the parent's n, where the parent was still kept when this row began
  status TEXT NOT NULL,
  gone INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,  -- seconds since the epoch, as the response says it
  completed_at INTEGER,
  expires_at REAL,              -- seconds since the epoch; NULL is never
  used_at REAL NOT NULL,        -- seconds since the epoch; later uses are noted only where limits need their order
  format INTEGER NOT NULL DEFAULT 1,
  conversation_id TEXT,
  owner TEXT NOT NULL DEFAULT '',
  fence INTEGER NOT NULL DEFAULT 1,
  keep_seconds REAL,            -- of a temporary response: how long it is kept after its end
  log_ended_at REAL,            -- seconds since the epoch: since when the event log has been whole; NULL: none to remove
  events_expired INTEGER NOT NULL DEFAULT 0,
  snapshot BLOB NOT NULL
);
INSERT INTO responses_anew (n, tenant, id, parent_id, parent, status, gone, created_at, completed_at, expires_at,
  used_at, format, log_ended_at, snapshot)
SELECT n, tenant, id, parent_id, parent, status, gone, created_at, completed_at, expires_at, used_at, format,
  CASE WHEN EXISTS (SELECT 1 FROM event_batches WHERE response = responses.n) THEN completed_at END, snapshot
FROM responses;
DROP TABLE responses;
ALTER TABLE responses_anew RENAME TO responses;
CREATE UNIQUE INDEX responses_by_id ON responses (tenant, id);
CREATE INDEX responses_by_parent ON responses (parent) WHERE parent IS NOT NULL;
CREATE INDEX responses_by_expiry ON responses (expires_at) WHERE gone = 0 AND expires_at IS NOT NULL;
CREATE INDEX responses_gone ON responses (n) WHERE gone = 1;
CREATE INDEX responses_running ON responses (owner) WHERE gone = 0 AND status IN ('queued', 'in_progress');
CREATE INDEX responses_by_log_end ON responses (log_ended_at) WHERE log_ended_at IS NOT NULL;
-- The lock of a conversation: one response at a time runs in it.
CREATE UNIQUE INDEX responses_running_in_conversation ON responses (tenant, conversation_id)
  WHERE conversation_id IS NOT NULL AND gone = 0 AND status IN ('queued', 'in_progress');

-- What another owner needs to run a response; a row goes when its response ends.
CREATE TABLE plans (
  response INTEGER PRIMARY KEY,
  body BLOB NOT NULL
);

-- What the engine drew to make the events of a batch; a row goes when its response ends.
CREATE TABLE samples (
  batch INTEGER PRIMARY KEY,
  body BLOB NOT NULL
);

CREATE TABLE conversations (
  n INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at INTEGER NOT NULL,  -- seconds since the epoch, as the conversation says it
  added_at REAL NOT NULL,       -- seconds since the epoch
  used_at REAL NOT NULL,        -- as for responses
  size INTEGER NOT NULL,        -- bytes of its items
  format INTEGER NOT NULL DEFAULT 1,
  metadata BLOB NOT NULL
);
CREATE UNIQUE INDEX conversations_by_id ON conversations (tenant, id);
CREATE INDEX conversations_by_addition ON conversations (added_at);

CREATE TABLE conversation_items (
  conversation INTEGER NOT NULL,
  pos INTEGER NOT NULL,
  item INTEGER NOT NULL,
  PRIMARY KEY (conversation, pos)
) WITHOUT ROWID;
CREATE UNIQUE INDEX conversation_items_by_item ON conversation_items (item, conversation);

ALTER TABLE totals ADD COLUMN conversations INTEGER NOT NULL DEFAULT 0;
ALTER TABLE totals ADD COLUMN conversation_bytes INTEGER NOT NULL DEFAULT 0;  -- an item counts in each that has it
ALTER TABLE totals ADD COLUMN loose_bytes INTEGER NOT NULL DEFAULT 0;         -- of items that no response has

CREATE TABLE idempotency (
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  digest BLOB NOT NULL,
  response_id TEXT NOT NULL,
  expires_at REAL NOT NULL,
  PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

CREATE TABLE webhook_deliveries (
  n INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  due_at REAL NOT NULL,         -- seconds since the epoch
  format INTEGER NOT NULL DEFAULT 1,
  body BLOB NOT NULL
);
CREATE UNIQUE INDEX webhook_deliveries_by_id ON webhook_deliveries (tenant, id);
CREATE INDEX webhook_deliveries_by_due ON webhook_deliveries (due_at);

CREATE TABLE api_keys (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  digest BLOB NOT NULL UNIQUE,  -- SHA-256 of the secret
  created_at INTEGER NOT NULL,
  limits BLOB NOT NULL,
  revoked_at INTEGER
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant);

CREATE TABLE codec_keys (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  secret BLOB NOT NULL,
  created_at INTEGER NOT NULL
);

CREATE TABLE tenants (
  tenant TEXT PRIMARY KEY,
  key BLOB NOT NULL             -- wrapped
) WITHOUT ROWID;
