-- A store as schema 1 wrote it: a chain whose first turn was deleted, a streamed response, one that runs, one that is
-- queued, and one of another tenant.
CREATE TABLE event_batches (
  n INTEGER PRIMARY KEY,
  response INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  offsets BLOB NOT NULL,        -- little-endian 32-bit numbers: where in the body each event begins
  body BLOB NOT NULL
);
INSERT INTO "event_batches" VALUES(1,4,0,1,1,X'0000000002000000',X'73307331');
INSERT INTO "event_batches" VALUES(2,4,2,2,1,X'00000000',X'7332');
INSERT INTO "event_batches" VALUES(3,5,0,1,1,X'0000000002000000',X'65306531');
INSERT INTO "event_batches" VALUES(4,5,2,2,1,X'00000000',X'6532');
CREATE TABLE items (
  n INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  body BLOB NOT NULL
);
INSERT INTO "items" VALUES(1,'ours','in_a',1,X'227175657374696F6E206122');
INSERT INTO "items" VALUES(2,'ours','out_a',1,X'22616E73776572206122');
INSERT INTO "items" VALUES(3,'ours','in_b',1,X'227175657374696F6E206222');
INSERT INTO "items" VALUES(4,'ours','out_b',1,X'22616E73776572206222');
INSERT INTO "items" VALUES(5,'ours','in_c',1,X'227175657374696F6E206322');
INSERT INTO "items" VALUES(6,'ours','out_c',1,X'22616E73776572206322');
INSERT INTO "items" VALUES(7,'ours','in_streamed',1,X'227175657374696F6E2073747265616D656422');
INSERT INTO "items" VALUES(8,'ours','out_streamed',1,X'22616E737765722073747265616D656422');
INSERT INTO "items" VALUES(9,'ours','in_running',1,X'227175657374696F6E2072756E6E696E6722');
INSERT INTO "items" VALUES(10,'ours','in_queued',1,X'227175657374696F6E2071756575656422');
INSERT INTO "items" VALUES(11,'theirs','in_a',1,X'227175657374696F6E206122');
INSERT INTO "items" VALUES(12,'theirs','out_a',1,X'22616E73776572206122');
CREATE TABLE response_items (
  response INTEGER NOT NULL,
  role INTEGER NOT NULL,        -- 0 in, 1 out
  pos INTEGER NOT NULL,
  item INTEGER NOT NULL,
  PRIMARY KEY (response, role, pos)
) WITHOUT ROWID;
INSERT INTO "response_items" VALUES(1,0,0,1);
INSERT INTO "response_items" VALUES(3,0,0,1);
INSERT INTO "response_items" VALUES(1,1,0,2);
INSERT INTO "response_items" VALUES(2,0,0,3);
INSERT INTO "response_items" VALUES(2,1,0,4);
INSERT INTO "response_items" VALUES(3,0,1,5);
INSERT INTO "response_items" VALUES(3,1,0,6);
INSERT INTO "response_items" VALUES(4,0,0,7);
INSERT INTO "response_items" VALUES(4,1,0,8);
INSERT INTO "response_items" VALUES(5,0,0,9);
INSERT INTO "response_items" VALUES(6,0,0,10);
INSERT INTO "response_items" VALUES(7,0,0,11);
INSERT INTO "response_items" VALUES(7,1,0,12);
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
INSERT INTO "responses" VALUES(1,'ours','a',NULL,NULL,'completed',1,1000,1001,3592000.0,1000000.0,1,X'');
INSERT INTO "responses" VALUES(2,'ours','b','a',1,'completed',0,1000,1001,3592000.0,1000000.000001,1,X'7B22656E646564223A2262227D');
INSERT INTO "responses" VALUES(3,'ours','c','b',2,'completed',0,1000,1001,3592000.0,1000000.000002,1,X'7B22656E646564223A2263227D');
INSERT INTO "responses" VALUES(4,'ours','streamed',NULL,NULL,'completed',0,1000,1001,3592000.0,1000000.000004,1,X'7B22656E646564223A2273747265616D6564227D');
INSERT INTO "responses" VALUES(5,'ours','running','c',3,'in_progress',0,1000,NULL,3592000.0,1000000.000005,1,X'7B22626567756E223A2272756E6E696E67227D');
INSERT INTO "responses" VALUES(6,'ours','queued',NULL,NULL,'queued',0,1000,NULL,3592000.0,1000000.000006,1,X'7B22626567756E223A22717565756564227D');
INSERT INTO "responses" VALUES(7,'theirs','a',NULL,NULL,'completed',0,1000,1001,3592000.0,1.0000000000080000609e+06,1,X'7B22656E646564223A2261227D');
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO "schema_version" VALUES(1,'responses');
CREATE TABLE totals (
  responses INTEGER NOT NULL,   -- those that are not gone
  items INTEGER NOT NULL,
  bytes INTEGER NOT NULL        -- of snapshots, items and events
);
INSERT INTO "totals" VALUES(6,12,267);
CREATE UNIQUE INDEX responses_by_id ON responses (tenant, id);
CREATE INDEX responses_by_parent ON responses (parent) WHERE parent IS NOT NULL;
CREATE INDEX responses_by_expiry ON responses (expires_at) WHERE gone = 0 AND expires_at IS NOT NULL;
CREATE INDEX responses_running ON responses (n) WHERE status IN ('queued', 'in_progress');
CREATE INDEX responses_gone ON responses (n) WHERE gone = 1;
CREATE UNIQUE INDEX items_by_id ON items (tenant, id);
CREATE INDEX response_items_by_item ON response_items (item);
CREATE UNIQUE INDEX event_batches_by_sequence ON event_batches (response, first_seq);
