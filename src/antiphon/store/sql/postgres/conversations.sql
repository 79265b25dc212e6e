-- The statements of the PostgreSQL store about conversations. One whose last addition is not after `oldest` has expired.

-- name: create_conversation
-- Adds a conversation with its first items.
WITH added AS (
  INSERT INTO conversations (tenant, id, format, created_at, added_at, used_at, next_pos, metadata)
  VALUES (:tenant, :id, :format, :created_at, :now, :used_at, cardinality(:item_ids::text[]), :metadata)
  RETURNING n
), given AS (
  SELECT id, body, place
  FROM unnest(:item_ids::text[], :item_bodies::bytea[]) WITH ORDINALITY AS g (id, body, place)
), fresh AS (
  INSERT INTO items (tenant, id, format, body)
  SELECT :tenant, f.id, :format, f.body
  FROM added, (SELECT DISTINCT ON (id) id, body FROM given ORDER BY id, place) AS f
  ON CONFLICT (tenant, id) DO NOTHING
  RETURNING id, n
), known AS (
  SELECT id, n FROM items WHERE tenant = :tenant AND id = ANY (:item_ids::text[]) FOR KEY SHARE
)
INSERT INTO conversation_items (conversation, pos, item)
SELECT added.n, w.place - 1, w.item FROM added, (
  SELECT coalesce(fresh.n, known.n) AS item, min(g.place) AS place
  FROM given AS g LEFT JOIN fresh ON fresh.id = g.id LEFT JOIN known ON known.id = g.id
  GROUP BY coalesce(fresh.n, known.n)
) AS w;

-- name: get_conversation
-- A conversation.
SELECT id, created_at, metadata FROM conversations WHERE tenant = :tenant AND id = :id AND added_at > :oldest;

-- name: update_conversation
-- Replaces the metadata of a conversation.
UPDATE conversations SET metadata = :metadata, used_at = :used_at
WHERE tenant = :tenant AND id = :id AND added_at > :oldest
RETURNING id, created_at, metadata;

-- name: add_conversation_items
-- Appends those items to a conversation that it does not have; its number, or no row where there is none.
WITH given AS (
  SELECT id, body, place
  FROM unnest(:item_ids::text[], :item_bodies::bytea[]) WITH ORDINALITY AS g (id, body, place)
), held AS (
  -- Locked, so that it is not removed before its items are in it.
  SELECT n FROM conversations WHERE tenant = :tenant AND id = :id AND added_at > :oldest FOR NO KEY UPDATE
), fresh AS (
  INSERT INTO items (tenant, id, format, body)
  SELECT :tenant, f.id, :format, f.body
  FROM held, (SELECT DISTINCT ON (id) id, body FROM given ORDER BY id, place) AS f
  ON CONFLICT (tenant, id) DO NOTHING
  RETURNING id, n
), known AS (
  SELECT id, n FROM items WHERE tenant = :tenant AND id = ANY (:item_ids::text[]) FOR KEY SHARE
), linked AS (
  SELECT coalesce(fresh.n, known.n) AS item, g.place
  FROM given AS g LEFT JOIN fresh ON fresh.id = g.id LEFT JOIN known ON known.id = g.id
), talk AS (
  UPDATE conversations AS c
  SET next_pos = c.next_pos + cardinality(:item_ids::text[]), used_at = :used_at,
    added_at = CASE WHEN EXISTS (
      SELECT FROM linked WHERE NOT EXISTS (
        SELECT FROM conversation_items AS ci WHERE ci.item = linked.item AND ci.conversation = c.n)
    ) THEN :now ELSE c.added_at END
  FROM held WHERE c.n = held.n
  RETURNING c.n, c.next_pos - cardinality(:item_ids::text[]) AS base
), said AS (
  INSERT INTO conversation_items (conversation, pos, item)
  SELECT talk.n, talk.base + w.place, w.item
  FROM talk, (SELECT item, min(place) AS place FROM linked GROUP BY item) AS w
  ON CONFLICT (item, conversation) DO NOTHING
)
SELECT n FROM talk;

-- name: conversation_item_ids
-- The ids of the items of a conversation, oldest first; one row of NULL where it has none.
SELECT items.id FROM conversations AS c
LEFT JOIN conversation_items AS ci ON ci.conversation = c.n
LEFT JOIN items ON items.n = ci.item
WHERE c.tenant = :tenant AND c.id = :id AND c.added_at > :oldest
ORDER BY ci.pos;

-- name: delete_conversation_item
-- Takes an item out of a conversation; the item's number.
DELETE FROM conversation_items AS ci USING conversations AS c, items AS i
WHERE c.tenant = :tenant AND c.id = :id AND c.added_at > :oldest AND i.tenant = :tenant AND i.id = :item_id
  AND ci.conversation = c.n AND ci.item = i.n
RETURNING ci.item;

-- name: lock_conversation
-- Locks a conversation; whether it has expired.
SELECT n, added_at <= :oldest FROM conversations WHERE tenant = :tenant AND id = :id FOR UPDATE;

-- name: find_expired_conversations
-- Some of the conversations whose time is up, locked.
SELECT n FROM conversations WHERE added_at <= :oldest ORDER BY added_at LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: find_least_used_conversations
-- Some of the conversations, least recently used first, locked, with the bytes of their items.
SELECT c.n, (
  SELECT coalesce(sum(octet_length(i.body)), 0) FROM conversation_items AS ci JOIN items AS i ON i.n = ci.item
  WHERE ci.conversation = c.n)
FROM conversations AS c ORDER BY c.used_at, c.n LIMIT :most FOR UPDATE OF c SKIP LOCKED;

-- name: lock_conversations_of
-- Locks some conversations of a tenant.
SELECT n FROM conversations WHERE tenant = :tenant ORDER BY id LIMIT :most FOR UPDATE;

-- name: delete_conversations
-- Removes locked conversations; the numbers of their items.
WITH gone AS (
  DELETE FROM conversations WHERE n = ANY (:numbers::bigint[])
)
DELETE FROM conversation_items WHERE conversation = ANY (:numbers::bigint[]) RETURNING item;

-- name: conversation_totals
-- How many conversations there are, and the bytes of their items; an item counts in each that has it.
SELECT (SELECT count(*) FROM conversations), (
  SELECT coalesce(sum(octet_length(i.body)), 0) FROM conversation_items AS ci JOIN items AS i ON i.n = ci.item);

-- name: set_conversations_used
-- Notes when conversations were last used.
UPDATE conversations AS c SET used_at = u.used_at
FROM unnest(:tenants::text[], :ids::text[], :times::double precision[]) AS u (tenant, id, used_at)
WHERE c.tenant = u.tenant AND c.id = u.id AND c.used_at < u.used_at;
