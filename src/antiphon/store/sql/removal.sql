-- The statements of the SQLite store that remove responses, their items and their events.

-- name: find_live
-- The number of a live response, and whether it runs.
SELECT n, status IN ('queued', 'in_progress') FROM responses
WHERE tenant = :tenant AND id = :id AND gone = 0
  AND (expires_at IS NULL OR expires_at > :now OR status IN ('queued', 'in_progress'));

-- name: find_kin
-- A response, its ancestors and all that descend from any of them, but for those gone: whether each runs and is live.
WITH RECURSIVE ancestor (n, parent, depth) AS (
  SELECT n, parent, 0 FROM responses WHERE n = :n
  UNION ALL
  SELECT r.n, r.parent, ancestor.depth + 1 FROM ancestor JOIN responses AS r ON r.n = ancestor.parent
), kin (n) AS (
  SELECT n FROM (SELECT n FROM ancestor ORDER BY depth DESC LIMIT 1)
  UNION ALL
  SELECT r.n FROM kin JOIN responses AS r ON r.parent = kin.n
)
SELECT r.n, r.id, r.status IN ('queued', 'in_progress'),
  r.expires_at IS NULL OR r.expires_at > :now OR r.status IN ('queued', 'in_progress')
FROM kin JOIN responses AS r ON r.n = kin.n WHERE r.gone = 0 ORDER BY r.n;

-- name: find_expired
-- Some of the responses whose time is up.
SELECT n, tenant, id FROM responses
WHERE gone = 0 AND expires_at <= ? AND status NOT IN ('queued', 'in_progress')
ORDER BY expires_at LIMIT ?;

-- name: find_unneeded
-- Gone responses that nothing descends from: an earlier process ended while it retained them.
SELECT n FROM responses WHERE gone = 1
  AND NOT EXISTS (SELECT 1 FROM responses AS child WHERE child.parent = responses.n);

-- name: find_old_logs
-- Some of the responses whose event log has been whole for long enough, with the bytes of it.
SELECT n, (SELECT coalesce(sum(length(body)), 0) FROM event_batches WHERE response = responses.n) FROM responses
WHERE log_ended_at <= ? ORDER BY log_ended_at LIMIT ?;

-- name: set_log_expired
-- Notes that the event log of a response is removed.
UPDATE responses SET log_ended_at = NULL, events_expired = 1 WHERE n = ?;

-- name: own_size
-- Bytes of a response's object and events.
SELECT length(snapshot) + (SELECT coalesce(sum(length(body)), 0) FROM event_batches WHERE response = responses.n)
FROM responses WHERE n = ?;

-- name: set_gone
-- Makes a response gone; its object is not needed any more.
UPDATE responses SET gone = 1, log_ended_at = NULL, snapshot = x'' WHERE n = ?;

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

-- name: item_left
-- Bytes of an item, and whether a response and whether a conversation has it.
SELECT length(body), EXISTS (SELECT 1 FROM response_items WHERE item = items.n),
  EXISTS (SELECT 1 FROM conversation_items WHERE item = items.n)
FROM items WHERE n = ?;

-- name: delete_item
-- Removes an item.
DELETE FROM items WHERE n = ?;

-- name: delete_response
-- Removes the row of a response.
DELETE FROM responses WHERE n = ?;

-- name: of_tenant
-- Some of the responses of a tenant, gone or not.
SELECT n, id, gone FROM responses WHERE tenant = ? LIMIT ?;
