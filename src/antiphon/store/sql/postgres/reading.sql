-- The statements of the PostgreSQL store that read responses, their items and their events.

-- name: get_response
-- A live response.
SELECT id, parent_id, status, created_at, snapshot, conversation_id, owner, fence, keep_seconds IS NOT NULL,
  events_expired
FROM responses
WHERE tenant = :tenant AND id = :id AND removed_at IS NULL AND gone_at IS NULL AND (running OR expires_at > :now);

-- name: chain
-- A response and its ancestors with their items, oldest first; a turn without items has one row of NULLs.
WITH RECURSIVE turn (n, id, parent_id, status, parent, depth) AS (
  SELECT r.n, r.id, r.parent_id, r.status, r.parent, 0
  FROM responses AS r
  WHERE r.tenant = :tenant AND r.id = :id AND r.removed_at IS NULL
    -- One that has expired is as good as gone, unless a live one descends from it.
    AND CASE WHEN r.gone_at IS NULL AND (r.running OR r.expires_at > :now) THEN true ELSE EXISTS (
      WITH RECURSIVE kin (n, live) AS (
        SELECT c.n, c.gone_at IS NULL AND (c.running OR c.expires_at > :now)
        FROM responses AS c WHERE c.parent = r.n AND c.removed_at IS NULL
        UNION ALL
        SELECT c.n, c.gone_at IS NULL AND (c.running OR c.expires_at > :now)
        FROM kin JOIN responses AS c ON c.parent = kin.n WHERE NOT kin.live AND c.removed_at IS NULL
      ) SELECT FROM kin WHERE live) END
  UNION ALL
  SELECT p.n, p.id, p.parent_id, p.status, p.parent, turn.depth + 1
  FROM turn JOIN responses AS p ON p.n = turn.parent
)
SELECT turn.id, turn.parent_id, turn.status, ri.role, items.body
FROM turn
LEFT JOIN response_items AS ri ON ri.response = turn.n
LEFT JOIN items ON items.n = ri.item
ORDER BY turn.depth DESC, ri.role, ri.pos;

-- name: chain_item_ids
-- The ids of the items that a response was made from, oldest first: the output of its own is left out.
WITH RECURSIVE turn (n, parent, depth) AS (
  SELECT r.n, r.parent, 0
  FROM responses AS r
  WHERE r.tenant = :tenant AND r.id = :id AND r.removed_at IS NULL
    AND CASE WHEN r.gone_at IS NULL AND (r.running OR r.expires_at > :now) THEN true ELSE EXISTS (
      WITH RECURSIVE kin (n, live) AS (
        SELECT c.n, c.gone_at IS NULL AND (c.running OR c.expires_at > :now)
        FROM responses AS c WHERE c.parent = r.n AND c.removed_at IS NULL
        UNION ALL
        SELECT c.n, c.gone_at IS NULL AND (c.running OR c.expires_at > :now)
        FROM kin JOIN responses AS c ON c.parent = kin.n WHERE NOT kin.live AND c.removed_at IS NULL
      ) SELECT FROM kin WHERE live) END
  UNION ALL
  SELECT p.n, p.parent, turn.depth + 1 FROM turn JOIN responses AS p ON p.n = turn.parent
)
SELECT items.id
FROM turn
JOIN response_items AS ri ON ri.response = turn.n
JOIN items ON items.n = ri.item
WHERE turn.depth > 0 OR ri.role = 0
ORDER BY turn.depth DESC, ri.role, ri.pos;

-- name: events
-- The batches of a live response that hold events after a number.
SELECT b.first_seq, b.body, b.offsets, s.body
FROM responses AS r
JOIN event_batches AS b ON b.response = r.n
LEFT JOIN samples AS s ON s.response = b.response AND s.first_seq = b.first_seq
WHERE r.tenant = :tenant AND r.id = :id AND r.removed_at IS NULL AND r.gone_at IS NULL
  AND (r.running OR r.expires_at > :now)
  -- From the batch that holds the next event, which the index finds, and not from the first one.
  AND b.first_seq >= coalesce((
    SELECT o.first_seq FROM event_batches AS o WHERE o.response = r.n AND o.first_seq <= :after::bigint + 1
    ORDER BY o.first_seq DESC LIMIT 1), 0)
  AND b.last_seq > :after::bigint
ORDER BY b.first_seq;

-- name: last_sequence
-- The number of the last event of a live response.
SELECT b.last_seq FROM responses AS r JOIN event_batches AS b ON b.response = r.n
WHERE r.tenant = :tenant AND r.id = :id AND r.removed_at IS NULL AND r.gone_at IS NULL
  AND (r.running OR r.expires_at > :now)
ORDER BY b.first_seq DESC LIMIT 1;

-- name: get_items
-- Those items of a list of ids that a response or a conversation has.
SELECT i.id, i.body FROM items AS i
WHERE i.tenant = :tenant AND i.id = ANY (:ids::text[]) AND (
  EXISTS (
    SELECT FROM response_items AS ri JOIN responses AS r ON r.n = ri.response
    WHERE ri.item = i.n AND r.removed_at IS NULL)
  OR EXISTS (SELECT FROM conversation_items AS ci WHERE ci.item = i.n));

-- name: totals
-- Responses that are not gone, items, bytes of all, bytes but for items that only conversations have, conversations.
SELECT own.responses, kept.items, own.size + logs.size + kept.size, own.size + logs.size + kept.size_of_responses,
  (SELECT count(*) FROM conversations)
FROM (
  SELECT count(*) AS responses, coalesce(sum(octet_length(snapshot)), 0) AS size FROM responses WHERE gone_at IS NULL
) AS own, (
  SELECT coalesce(sum(octet_length(body)), 0) AS size FROM event_batches
) AS logs, (
  SELECT count(*) AS items, coalesce(sum(size), 0) AS size,
    coalesce(sum(size) FILTER (WHERE of_response), 0) AS size_of_responses
  FROM (
    SELECT octet_length(i.body) AS size,
      EXISTS (
        SELECT FROM response_items AS ri JOIN responses AS r ON r.n = ri.response
        WHERE ri.item = i.n AND r.removed_at IS NULL) AS of_response,
      EXISTS (SELECT FROM conversation_items AS ci WHERE ci.item = i.n) AS of_conversation
    FROM items AS i
  ) AS each_item WHERE of_response OR of_conversation
) AS kept;

-- name: count_responses
-- How many responses are not gone; in two parts, since there is an index for each.
SELECT (SELECT count(*) FROM responses WHERE gone_at IS NULL AND running)
  + (SELECT count(*) FROM responses WHERE gone_at IS NULL AND NOT running);

-- name: report
-- The bytes of the database, responses that are not gone and those of them that run, items and conversations.
SELECT pg_database_size(current_database()), (SELECT count(*) FROM responses WHERE gone_at IS NULL),
  (SELECT count(*) FROM responses WHERE gone_at IS NULL AND running), (SELECT count(*) FROM items),
  (SELECT count(*) FROM conversations);
