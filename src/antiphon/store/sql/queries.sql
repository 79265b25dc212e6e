-- The statements of the SQLite store that add and change responses, and those that read. A response is live when it is
-- not gone and has not expired; one that runs does not expire. Statements that write take their values by position, in
-- the order of the columns; the others by name.

-- name: insert_response
-- Adds a response and finds its parent, gone or not.
INSERT INTO responses (parent, tenant, id, parent_id, status, created_at, completed_at, expires_at, used_at,
  conversation_id, owner, keep_seconds, log_ended_at, snapshot)
VALUES ((SELECT n FROM responses WHERE tenant = ? AND id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_item
-- Adds an item, unless the tenant has one by that id.
INSERT OR IGNORE INTO items (tenant, id, body) VALUES (?, ?, ?);

-- name: find_item
-- The number of an item, its bytes, and whether a response has it.
SELECT n, length(body), EXISTS (SELECT 1 FROM response_items WHERE item = items.n) FROM items
WHERE tenant = ? AND id = ?;

-- name: insert_response_item
-- Puts an item into a response.
INSERT INTO response_items (response, role, pos, item) VALUES (?, ?, ?, ?);

-- name: insert_batch
-- Adds a batch to a response that the same transaction has found.
INSERT INTO event_batches (response, first_seq, last_seq, offsets, body) VALUES (?, ?, ?, ?, ?);

-- name: append_batch
-- Adds a batch to a response if that still runs under this fence and the batch comes right after its last one.
INSERT INTO event_batches (response, first_seq, last_seq, offsets, body)
SELECT n, ?, ?, ?, ? FROM responses
WHERE tenant = ? AND id = ? AND fence = ? AND gone = 0 AND status IN ('queued', 'in_progress')
  AND ? = 1 + coalesce(
    (SELECT last_seq FROM event_batches WHERE response = responses.n ORDER BY first_seq DESC LIMIT 1), -1);

-- name: insert_sample
-- Keeps what the engine drew for a batch.
INSERT INTO samples (batch, body) VALUES (?, ?);

-- name: set_status
-- Sets the status of a response that runs.
UPDATE responses SET status = ? WHERE tenant = ? AND id = ?;

-- name: insert_plan
-- Keeps what another owner needs to run a response.
INSERT INTO plans (response, body) VALUES (?, ?);

-- name: delete_plan
-- Drops the plan of a response.
DELETE FROM plans WHERE response = ?;

-- name: delete_samples
-- Drops what the engine drew for a response.
DELETE FROM samples WHERE batch IN (SELECT n FROM event_batches WHERE response = ?);

-- name: find_running
-- A response that can still be finished under this fence: the size of its object, its times, and its last event.
SELECT n, length(snapshot), expires_at, keep_seconds, conversation_id,
  coalesce((SELECT last_seq FROM event_batches WHERE response = responses.n ORDER BY first_seq DESC LIMIT 1), -1)
FROM responses
WHERE tenant = ? AND id = ? AND fence = ? AND gone = 0 AND status IN ('queued', 'in_progress');

-- name: finish_response
-- Sets the final state of a response.
UPDATE responses SET status = ?, completed_at = ?, expires_at = ?, used_at = ?, log_ended_at = ?, snapshot = ?
WHERE n = ?;

-- name: claim
-- Gives a running response to a new owner, if it still has that fence.
UPDATE responses SET fence = fence + 1, owner = ?
WHERE tenant = ? AND id = ? AND fence = ? AND gone = 0 AND status IN ('queued', 'in_progress') AND format <= ?;

-- name: runs_in_conversation
-- Whether a response runs in a conversation.
SELECT 1 FROM responses
WHERE tenant = ? AND conversation_id = ? AND gone = 0 AND status IN ('queued', 'in_progress');

-- name: find_response
-- The number of a response, gone or not.
SELECT n FROM responses WHERE tenant = ? AND id = ?;

-- name: set_used
-- Notes when a response was last used.
UPDATE responses SET used_at = ? WHERE tenant = ? AND id = ?;

-- name: add_to_totals
-- Keeps the running totals of responses and items.
UPDATE totals SET responses = responses + ?, items = items + ?, bytes = bytes + ?;

-- name: add_to_conversation_totals
-- Keeps the running totals of conversations.
UPDATE totals SET conversations = conversations + ?, conversation_bytes = conversation_bytes + ?,
  loose_bytes = loose_bytes + ?;

-- name: totals
-- The running totals.
SELECT responses, items, bytes, conversations, conversation_bytes, loose_bytes FROM totals;

-- name: order_of_use
-- The responses that limits may evict, least recently used first.
SELECT tenant, id, used_at FROM responses
WHERE gone = 0 AND status NOT IN ('queued', 'in_progress')
ORDER BY used_at, n;

-- name: get_response
-- A live response.
SELECT parent_id, status, created_at, snapshot, conversation_id, owner, fence, keep_seconds IS NOT NULL, events_expired
FROM responses
WHERE tenant = :tenant AND id = :id AND gone = 0
  AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'));

-- name: get_plan
-- What another owner needs to run a response.
SELECT body FROM plans WHERE response = (SELECT n FROM responses WHERE tenant = :tenant AND id = :id);

-- name: chain
-- A response and so many of its ancestors with their items, oldest first; a turn without items has one row of NULLs.
WITH RECURSIVE turn (n, id, parent_id, status, parent, depth, live) AS (
  SELECT n, id, parent_id, status, parent, 0,
    gone = 0 AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'))
  FROM responses
  WHERE tenant = :tenant AND id = :id
  UNION ALL
  SELECT r.n, r.id, r.parent_id, r.status, r.parent, turn.depth + 1, 1
  FROM turn JOIN responses AS r ON r.n = turn.parent
  WHERE r.tenant = :tenant AND turn.depth + 1 < :most
)
SELECT turn.depth, turn.live, turn.id, turn.parent_id, ri.role, items.body, turn.status
FROM turn
LEFT JOIN response_items AS ri ON ri.response = turn.n
LEFT JOIN items ON items.n = ri.item
ORDER BY turn.depth DESC, ri.role, ri.pos;

-- name: chain_item_ids
-- The same with the ids of the items instead of their bodies.
WITH RECURSIVE turn (n, id, parent_id, status, parent, depth, live) AS (
  SELECT n, id, parent_id, status, parent, 0,
    gone = 0 AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'))
  FROM responses
  WHERE tenant = :tenant AND id = :id
  UNION ALL
  SELECT r.n, r.id, r.parent_id, r.status, r.parent, turn.depth + 1, 1
  FROM turn JOIN responses AS r ON r.n = turn.parent
  WHERE r.tenant = :tenant AND turn.depth + 1 < :most
)
SELECT turn.depth, turn.live, turn.id, turn.parent_id, ri.role, items.id
FROM turn
LEFT JOIN response_items AS ri ON ri.response = turn.n
LEFT JOIN items ON items.n = ri.item
ORDER BY turn.depth DESC, ri.role, ri.pos;

-- name: is_needed
-- Whether a response or one of its descendants is live.
WITH RECURSIVE kin (n, live) AS (
  SELECT n, gone = 0 AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'))
  FROM responses WHERE tenant = :tenant AND id = :id
  UNION ALL
  SELECT r.n, r.gone = 0 AND (r.expires_at IS NULL OR r.expires_at > :now OR r.status IN ('queued', 'in_progress'))
  FROM kin JOIN responses AS r ON r.parent = kin.n
  WHERE r.tenant = :tenant AND NOT kin.live
)
SELECT 1 FROM kin WHERE live LIMIT 1;

-- name: events
-- The batches of a live response that hold events after a number.
SELECT b.first_seq, b.body, b.offsets, coalesce(s.body, x'')
FROM responses AS r JOIN event_batches AS b ON b.response = r.n LEFT JOIN samples AS s ON s.batch = b.n
WHERE r.tenant = :tenant AND r.id = :id AND r.gone = 0
  AND (r.expires_at IS NULL OR r.expires_at > :now OR r.status IN ('queued', 'in_progress'))
  -- Where the batch with the next event begins, so that who reads as it grows does not walk over all of it.
  AND b.first_seq >= coalesce(
    (SELECT first_seq FROM event_batches WHERE response = r.n AND first_seq <= :after + 1
     ORDER BY first_seq DESC LIMIT 1), 0)
  AND b.last_seq > :after
ORDER BY b.first_seq LIMIT :most;

-- name: last_sequence
-- The number of the last event of a live response.
SELECT b.last_seq FROM responses AS r JOIN event_batches AS b ON b.response = r.n
WHERE r.tenant = :tenant AND r.id = :id AND r.gone = 0
  AND (r.expires_at IS NULL OR r.expires_at > :now OR r.status IN ('queued', 'in_progress'))
ORDER BY b.first_seq DESC LIMIT 1;

-- name: get_items
-- Those items of a list of ids, given as JSON, that are kept. CROSS, so that the ids lead and not all of the tenant.
SELECT items.id, items.body FROM json_each(:ids) AS wanted
CROSS JOIN items ON items.tenant = :tenant AND items.id = wanted.value;

-- name: orphans
-- The running responses of every tenant, of a format that is known, that none of these owners runs, oldest first.
SELECT tenant, id, owner, fence FROM responses INDEXED BY responses_running
WHERE gone = 0 AND status IN ('queued', 'in_progress') AND format <= :format
  AND owner NOT IN (SELECT value FROM json_each(:owners))
ORDER BY n;
