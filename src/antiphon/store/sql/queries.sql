-- Every statement of the SQLite store. A response is live when it is not gone and has not expired; one that runs does
-- not expire. Statements that write take their values by position, in the order of the columns; the others by name.

-- name: insert_response
-- Adds a response and finds its parent, gone or not.
INSERT INTO responses (parent, tenant, id, parent_id, status, created_at, completed_at, expires_at, used_at, snapshot)
VALUES ((SELECT n FROM responses WHERE tenant = ? AND id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_item
-- Adds an item, unless the tenant has one by that id.
INSERT OR IGNORE INTO items (tenant, id, body) VALUES (?, ?, ?);

-- name: find_item
-- The number of an item.
SELECT n FROM items WHERE tenant = ? AND id = ?;

-- name: insert_response_item
-- Puts an item into a response.
INSERT INTO response_items (response, role, pos, item) VALUES (?, ?, ?, ?);

-- name: insert_batch
-- Adds a batch to a response that the same transaction has found.
INSERT INTO event_batches (response, first_seq, last_seq, offsets, body) VALUES (?, ?, ?, ?, ?);

-- name: append_batch
-- Adds a batch to a response if that still runs.
INSERT INTO event_batches (response, first_seq, last_seq, offsets, body)
SELECT n, ?, ?, ?, ? FROM responses
WHERE tenant = ? AND id = ? AND gone = 0 AND status IN ('queued', 'in_progress');

-- name: find_running
-- A response that can still be finished, with the size of its object and its time.
SELECT n, length(snapshot), expires_at FROM responses
WHERE tenant = ? AND id = ? AND gone = 0 AND status IN ('queued', 'in_progress');

-- name: finish_response
-- Sets the final state of a response.
UPDATE responses SET status = ?, completed_at = ?, used_at = ?, snapshot = ? WHERE n = ?;

-- name: find_live
-- The number of a live response.
SELECT n FROM responses
WHERE tenant = :tenant AND id = :id AND gone = 0
  AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'));

-- name: find_response
-- The number of a response, gone or not.
SELECT n FROM responses WHERE tenant = ? AND id = ?;

-- name: find_expired
-- Some of the responses whose time is up.
SELECT n, tenant, id FROM responses
WHERE gone = 0 AND expires_at <= ? AND status NOT IN ('queued', 'in_progress')
ORDER BY expires_at LIMIT ?;

-- name: find_unneeded
-- Gone responses that nothing descends from: an earlier process ended while it retained them.
SELECT n FROM responses WHERE gone = 1
  AND NOT EXISTS (SELECT 1 FROM responses AS child WHERE child.parent = responses.n);

-- name: own_size
-- Bytes of a response's object and events.
SELECT length(snapshot) + (SELECT coalesce(sum(length(body)), 0) FROM event_batches WHERE response = responses.n)
FROM responses WHERE n = ?;

-- name: set_gone
-- Makes a response gone; its object is not needed any more.
UPDATE responses SET gone = 1, snapshot = x'' WHERE n = ?;

-- name: delete_batches
-- Removes the events of a response.
DELETE FROM event_batches WHERE response = ?;

-- name: removable
-- A gone response with its parent, if nothing descends from it.
SELECT tenant, id, parent FROM responses WHERE n = ? AND gone = 1
  AND NOT EXISTS (SELECT 1 FROM responses AS child WHERE child.parent = responses.n);

-- name: items_of
-- The numbers of a response's items.
SELECT DISTINCT item FROM response_items WHERE response = ?;

-- name: delete_response_items
-- Takes all items out of a response.
DELETE FROM response_items WHERE response = ?;

-- name: item_size
-- Bytes of an item that no response refers to.
SELECT length(body) FROM items WHERE n = ?
  AND NOT EXISTS (SELECT 1 FROM response_items WHERE item = items.n);

-- name: delete_item
-- Removes an item.
DELETE FROM items WHERE n = ?;

-- name: delete_response
-- Removes the row of a response.
DELETE FROM responses WHERE n = ?;

-- name: add_to_totals
-- Keeps the running totals.
UPDATE totals SET responses = responses + ?, items = items + ?, bytes = bytes + ?;

-- name: totals
-- The running totals.
SELECT responses, items, bytes FROM totals;

-- name: set_used
-- Notes when a response was last used.
UPDATE responses SET used_at = ? WHERE tenant = ? AND id = ?;

-- name: order_of_use
-- The responses that limits may evict, least recently used first.
SELECT tenant, id, used_at FROM responses WHERE gone = 0 AND status NOT IN ('queued', 'in_progress')
ORDER BY used_at, n;

-- name: get_response
-- A live response.
SELECT parent_id, status, created_at, snapshot FROM responses
WHERE tenant = :tenant AND id = :id AND gone = 0
  AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'));

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
SELECT b.first_seq, b.body, b.offsets FROM responses AS r JOIN event_batches AS b ON b.response = r.n
WHERE r.tenant = :tenant AND r.id = :id AND r.gone = 0
  AND (r.expires_at IS NULL OR r.expires_at > :now OR r.status IN ('queued', 'in_progress'))
  AND b.last_seq > :after
ORDER BY b.first_seq LIMIT :most;

-- name: get_items
-- Those items of a list of ids, given as JSON, that are kept.
SELECT items.id, items.body FROM json_each(:ids) AS wanted
JOIN items ON items.tenant = :tenant AND items.id = wanted.value;

-- name: running
-- The responses of every tenant that are queued or in progress.
SELECT tenant, id FROM responses WHERE gone = 0 AND status IN ('queued', 'in_progress') ORDER BY n;
