-- The statements of the PostgreSQL store that read responses, their items and their events. Walks go by LATERAL with
-- OFFSET 0, as in `removal.sql`.

-- name: get_response
-- A live response.
SELECT id, parent_id, status, created_at, snapshot, conversation_id, owner, fence, keep_seconds IS NOT NULL,
  events_expired
FROM responses
WHERE tenant = :tenant AND id = :id AND NOT removed AND NOT gone AND (running OR expires_at > :now);

-- name: chain
-- A response and its ancestors with their items, oldest first; a turn without items has one row of NULLs.
WITH RECURSIVE turn (n, id, parent_id, status, parent, depth) AS (
  SELECT r.n, r.id, r.parent_id, r.status, r.parent, 0
  FROM responses AS r
  WHERE r.tenant = :tenant AND r.id = :id AND NOT r.removed
    -- One that has expired is as good as gone, unless a live one descends from it.
    AND CASE WHEN NOT r.gone AND (r.running OR r.expires_at > :now) THEN true ELSE EXISTS (
      WITH RECURSIVE kin (n, live) AS (
        SELECT c.n, NOT c.gone AND (c.running OR c.expires_at > :now)
        FROM responses AS c WHERE c.parent = r.n AND NOT c.removed
        UNION ALL
        SELECT c.n, NOT c.gone AND (c.running OR c.expires_at > :now)
        FROM kin CROSS JOIN LATERAL (SELECT * FROM responses WHERE parent = kin.n OFFSET 0) AS c
        WHERE NOT kin.live AND NOT c.removed
      ) SELECT FROM kin WHERE live) END
  UNION ALL
  SELECT p.n, p.id, p.parent_id, p.status, p.parent, turn.depth + 1
  FROM turn CROSS JOIN LATERAL (SELECT * FROM responses WHERE n = turn.parent OFFSET 0) AS p
)
SELECT turn.id, turn.parent_id, turn.status, ri.role, items.body
FROM turn
LEFT JOIN LATERAL (SELECT role, pos, item FROM response_items WHERE response = turn.n OFFSET 0) AS ri ON true
LEFT JOIN LATERAL (SELECT body FROM items WHERE n = ri.item OFFSET 0) AS items ON true
ORDER BY turn.depth DESC, ri.role, ri.pos;

-- name: chain_item_ids
-- The ids of the items that a response was made from, oldest first: the output of its own is left out.
WITH RECURSIVE turn (n, parent, depth) AS (
  SELECT r.n, r.parent, 0
  FROM responses AS r
  WHERE r.tenant = :tenant AND r.id = :id AND NOT r.removed
    AND CASE WHEN NOT r.gone AND (r.running OR r.expires_at > :now) THEN true ELSE EXISTS (
      WITH RECURSIVE kin (n, live) AS (
        SELECT c.n, NOT c.gone AND (c.running OR c.expires_at > :now)
        FROM responses AS c WHERE c.parent = r.n AND NOT c.removed
        UNION ALL
        SELECT c.n, NOT c.gone AND (c.running OR c.expires_at > :now)
        FROM kin CROSS JOIN LATERAL (SELECT * FROM responses WHERE parent = kin.n OFFSET 0) AS c
        WHERE NOT kin.live AND NOT c.removed
      ) SELECT FROM kin WHERE live) END
  UNION ALL
  SELECT p.n, p.parent, turn.depth + 1
  FROM turn CROSS JOIN LATERAL (SELECT n, parent FROM responses WHERE n = turn.parent OFFSET 0) AS p
)
SELECT items.id
FROM turn
CROSS JOIN LATERAL (SELECT role, pos, item FROM response_items WHERE response = turn.n OFFSET 0) AS ri
CROSS JOIN LATERAL (SELECT id FROM items WHERE n = ri.item OFFSET 0) AS items
WHERE turn.depth > 0 OR ri.role = 0
ORDER BY turn.depth DESC, ri.role, ri.pos;

-- name: events
-- The batches of a live response that hold events after a number.
SELECT b.first_seq, b.body, b.offsets, s.body
FROM responses AS r
JOIN event_batches AS b ON b.response = r.n
LEFT JOIN samples AS s ON s.response = b.response AND s.first_seq = b.first_seq
WHERE r.tenant = :tenant AND r.id = :id AND NOT r.removed AND NOT r.gone
  AND (r.running OR r.expires_at > :now)
  -- From the batch that holds the next event, which the index finds, and not from the first one.
  AND b.first_seq >= coalesce((
    SELECT o.first_seq FROM event_batches AS o WHERE o.response = r.n AND o.first_seq <= :after::bigint + 1
    ORDER BY o.first_seq DESC LIMIT 1), 0)
  AND b.last_seq > :after::bigint
ORDER BY b.first_seq LIMIT :most::bigint;

-- name: last_sequence
-- The number of the last event of a live response.
SELECT b.last_seq FROM responses AS r JOIN event_batches AS b ON b.response = r.n
WHERE r.tenant = :tenant AND r.id = :id AND NOT r.removed AND NOT r.gone
  AND (r.running OR r.expires_at > :now)
ORDER BY b.first_seq DESC LIMIT 1;

-- name: get_items
-- Those items of a list of ids that a response or a conversation has.
SELECT i.id, i.body FROM items AS i
WHERE i.tenant = :tenant AND i.id = ANY (:ids::text[]) AND coalesce(
  -- Not EXISTS, for which the planner would read all items of all responses into a hash table.
  (SELECT true FROM response_items AS ri JOIN responses AS r ON r.n = ri.response
   WHERE ri.item = i.n AND NOT r.removed LIMIT 1),
  (SELECT true FROM conversation_items AS ci WHERE ci.item = i.n LIMIT 1));

-- name: totals
-- Responses that are not gone, items, bytes of all, bytes but for items that only conversations have, conversations.
SELECT own.responses, kept.items, own.size + logs.size + kept.size, own.size + logs.size + kept.size_of_responses,
  (SELECT count(*) FROM conversations)
FROM (
  SELECT count(*) AS responses, coalesce(sum(octet_length(snapshot)), 0) AS size FROM responses WHERE NOT gone
) AS own, (
  SELECT coalesce(sum(octet_length(body)), 0) AS size FROM event_batches
) AS logs, (
  SELECT count(*) AS items, coalesce(sum(size), 0) AS size,
    coalesce(sum(size) FILTER (WHERE of_response), 0) AS size_of_responses
  FROM (
    SELECT octet_length(i.body) AS size, said.item IS NOT NULL AS of_response
    FROM items AS i
    LEFT JOIN (
      SELECT DISTINCT ri.item FROM response_items AS ri JOIN responses AS r ON r.n = ri.response
      WHERE NOT r.removed
    ) AS said ON said.item = i.n
    LEFT JOIN (SELECT DISTINCT item FROM conversation_items) AS talked ON talked.item = i.n
    WHERE said.item IS NOT NULL OR talked.item IS NOT NULL
  ) AS each_item
) AS kept;

-- name: count_responses
-- How many responses are not gone; in two parts, since there is an index for each.
SELECT (SELECT count(*) FROM responses WHERE NOT gone AND running)
  + (SELECT count(*) FROM responses WHERE NOT gone AND NOT running);

-- name: report
-- The bytes of the database, responses that are not gone and those of them that run, items and conversations.
SELECT pg_database_size(current_database()), (SELECT count(*) FROM responses WHERE NOT gone),
  (SELECT count(*) FROM responses WHERE NOT gone AND running), (SELECT count(*) FROM items),
  (SELECT count(*) FROM conversations);

-- name: report_files
-- The files of every tenant, and the bytes of their content.
SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM files;
