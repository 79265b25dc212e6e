-- Responses, their items and their events.
--
-- Rows refer to each other by `n`, a number of this file's own: ids are 49 characters long, and each would otherwise
-- stand in four places. Every look-up from outside goes by (tenant, id); `n` never leaves the file.

CREATE TABLE responses (
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
  snapshot BLOB NOT NULL
);
CREATE UNIQUE INDEX responses_by_id ON responses (tenant, id);
CREATE INDEX responses_by_parent ON responses (parent) WHERE parent IS NOT NULL;
CREATE INDEX responses_by_expiry ON responses (expires_at) WHERE gone = 0 AND expires_at IS NOT NULL;
CREATE INDEX responses_running ON responses (n) WHERE status IN ('queued', 'in_progress');
CREATE INDEX responses_gone ON responses (n) WHERE gone = 1;

CREATE TABLE items (
  n INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  body BLOB NOT NULL
);
CREATE UNIQUE INDEX items_by_id ON items (tenant, id);

CREATE TABLE response_items (
  response INTEGER NOT NULL,
  role INTEGER NOT NULL,        -- 0 in, 1 out
  pos INTEGER NOT NULL,
  item INTEGER NOT NULL,
  PRIMARY KEY (response, role, pos)
) WITHOUT ROWID;
CREATE INDEX response_items_by_item ON response_items (item);

CREATE TABLE event_batches (
  n INTEGER PRIMARY KEY,
  response INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  offsets BLOB NOT NULL,        -- little-endian 32-bit numbers: where in the body each event begins
  body BLOB NOT NULL
);
CREATE UNIQUE INDEX event_batches_by_sequence ON event_batches (response, first_seq);

CREATE TABLE totals (
  responses INTEGER NOT NULL,   -- those that are not gone
  items INTEGER NOT NULL,
  bytes INTEGER NOT NULL        -- of snapshots, items and events
);
INSERT INTO totals VALUES (0, 0, 0);
