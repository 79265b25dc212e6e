-- The statements of the PostgreSQL store that begin, go on with and end responses: one round trip and one transaction
-- each. Parameters are named. A response is live when it is not gone and has not expired; one that runs does not expire.
--
-- What must not be half done is refused by NULL in a column that takes none, which undoes the whole statement: in
-- `status` where the conversation is locked, in `first_seq` where events do not follow each other, and in `item` where
-- an item came or went while the statement ran, so that it has to be tried again. CASE stands where a plain condition
-- would let the planner read the index of all running responses instead of finding the one.

-- name: create_response
-- Begins a response, or begins and ends it: how many were added, and whether that parent is there.
WITH parent AS (
  -- The lock keeps whoever removes responses from taking it away in the meantime.
  SELECT n FROM responses WHERE tenant = :tenant AND id = :parent_id AND NOT removed FOR KEY SHARE
), record AS (
  INSERT INTO idempotency (tenant, key, digest, response_id, expires_at)
  SELECT :tenant, :key, :digest, :id, :key_expires_at
  WHERE :key::text IS NOT NULL AND (:without_parent OR EXISTS (SELECT FROM parent))
  ON CONFLICT (tenant, key) DO UPDATE
  SET digest = excluded.digest, response_id = excluded.response_id, expires_at = excluded.expires_at
  WHERE idempotency.expires_at <= :now OR idempotency.response_id = excluded.response_id
  RETURNING 1
), added AS (
  INSERT INTO responses (tenant, id, parent_id, parent, conversation_id, status, owner, format, created_at,
    completed_at, expires_at, keep_seconds, used_at, log_ended_at, snapshot)
  SELECT :tenant, :id, :parent_id, (SELECT n FROM parent), :conversation_id,
    CASE WHEN :conversation_id::text IS NULL OR NOT EXISTS (
      SELECT FROM responses
      WHERE tenant = :tenant AND conversation_id = :conversation_id AND running AND NOT gone
    ) THEN :status END,
    :owner, :format, :created_at, :completed_at, :expires_at, :keep_seconds, :used_at, :log_ended_at, :snapshot
  WHERE (:without_parent OR EXISTS (SELECT FROM parent)) AND (:key::text IS NULL OR EXISTS (SELECT FROM record))
  RETURNING n
), planned AS (
  INSERT INTO plans (response, body) SELECT n, :plan FROM added WHERE octet_length(:plan::bytea) > 0
), logged AS (
  INSERT INTO event_batches (response, first_seq, last_seq, format, offsets, body)
  SELECT added.n, b.first_seq, b.last_seq, :format, b.offsets, b.body
  FROM added, unnest(:firsts::integer[], :lasts::integer[], :offsets::bytea[], :batches::bytea[])
    AS b (first_seq, last_seq, offsets, body)
), sampled AS (
  INSERT INTO samples (response, first_seq, body)
  SELECT added.n, s.first_seq, s.body
  FROM added, unnest(:sample_firsts::integer[], :samples::bytea[]) AS s (first_seq, body)
), given AS (
  SELECT id, body, role, pos, place
  FROM unnest(:item_ids::text[], :item_bodies::bytea[], :item_roles::smallint[], :item_places::integer[])
    WITH ORDINALITY AS g (id, body, role, pos, place)
), fresh AS (
  INSERT INTO items (tenant, id, format, body)
  SELECT :tenant, f.id, :format, f.body
  FROM added, (SELECT DISTINCT ON (id) id, body FROM given ORDER BY id, place) AS f
  ON CONFLICT (tenant, id) DO NOTHING
  RETURNING id, n
), known AS (
  SELECT id, n FROM items WHERE tenant = :tenant AND id = ANY (:item_ids::text[]) FOR KEY SHARE
), linked AS (
  SELECT g.role, g.pos, g.place, coalesce(fresh.n, known.n) AS item
  FROM given AS g LEFT JOIN fresh ON fresh.id = g.id LEFT JOIN known ON known.id = g.id
), placed AS (
  INSERT INTO response_items (response, role, pos, item)
  SELECT added.n, linked.role, linked.pos, linked.item FROM added, linked
), talk AS (
  UPDATE conversations AS c
  SET next_pos = c.next_pos + (SELECT count(*) FROM linked), used_at = :used_at,
    added_at = CASE WHEN EXISTS (
      SELECT FROM linked WHERE NOT EXISTS (
        SELECT FROM conversation_items AS ci WHERE ci.item = linked.item AND ci.conversation = c.n)
    ) THEN :now ELSE c.added_at END
  FROM added
  WHERE :to_conversation AND c.tenant = :tenant AND c.id = :conversation_id AND c.added_at > :oldest
  RETURNING c.n, c.next_pos - (SELECT count(*) FROM linked) AS base
), said AS (
  INSERT INTO conversation_items (conversation, pos, item)
  SELECT talk.n, talk.base + w.place, w.item
  FROM talk, (SELECT item, min(place) AS place FROM linked GROUP BY item) AS w
  ON CONFLICT (item, conversation) DO NOTHING
), sent AS (
  INSERT INTO webhook_deliveries (tenant, id, format, endpoint, created_at, due_at, body)
  SELECT :tenant, d.id, :format, d.endpoint, d.created_at, d.created_at, d.body
  FROM added, unnest(:delivery_ids::text[], :endpoints::text[], :deliveries_at::bigint[], :deliveries::bytea[])
    AS d (id, endpoint, created_at, body)
  ON CONFLICT (tenant, id) DO NOTHING
)
SELECT (SELECT count(*) FROM added), EXISTS (SELECT FROM parent);

-- name: finish_response
-- Ends a running response under its fence; its number and its conversation, or no row where there is none.
WITH held AS (
  UPDATE responses
  SET status = :status, completed_at = :completed_at, snapshot = :snapshot, used_at = :used_at,
    expires_at = CASE WHEN keep_seconds IS NULL THEN expires_at ELSE :now + keep_seconds END,
    log_ended_at = CASE WHEN cardinality(:firsts::integer[]) > 0 OR EXISTS (
      SELECT FROM event_batches WHERE response = responses.n) THEN :now END
  WHERE tenant = :tenant AND id = :id AND NOT removed AND CASE WHEN gone THEN false ELSE running END
    AND fence = :fence
  RETURNING n, conversation_id, 1 + coalesce(
    (SELECT last_seq FROM event_batches WHERE response = responses.n ORDER BY first_seq DESC LIMIT 1), -1) AS next_seq
), planned AS (
  DELETE FROM plans WHERE response = ANY (ARRAY(SELECT n FROM held))
), sampled AS (
  DELETE FROM samples WHERE response = ANY (ARRAY(SELECT n FROM held))
), logged AS (
  INSERT INTO event_batches (response, first_seq, last_seq, format, offsets, body)
  SELECT held.n, CASE WHEN :in_order AND held.next_seq = (:firsts::integer[])[1] THEN b.first_seq END, b.last_seq, :format,
    b.offsets, b.body
  FROM held, unnest(:firsts::integer[], :lasts::integer[], :offsets::bytea[], :batches::bytea[])
    AS b (first_seq, last_seq, offsets, body)
), given AS (
  SELECT id, body, place
  FROM unnest(:item_ids::text[], :item_bodies::bytea[]) WITH ORDINALITY AS g (id, body, place)
), fresh AS (
  INSERT INTO items (tenant, id, format, body)
  SELECT :tenant, f.id, :format, f.body
  FROM held, (SELECT DISTINCT ON (id) id, body FROM given ORDER BY id, place) AS f
  ON CONFLICT (tenant, id) DO NOTHING
  RETURNING id, n
), known AS (
  SELECT id, n FROM items WHERE tenant = :tenant AND id = ANY (:item_ids::text[]) FOR KEY SHARE
), linked AS (
  SELECT g.place, coalesce(fresh.n, known.n) AS item
  FROM given AS g LEFT JOIN fresh ON fresh.id = g.id LEFT JOIN known ON known.id = g.id
), placed AS (
  INSERT INTO response_items (response, role, pos, item)
  SELECT held.n, 1, linked.place - 1, linked.item FROM held, linked
), whole AS (
  SELECT item, row_number() OVER (ORDER BY role, place) AS place FROM (
    SELECT 0 AS role, ri.pos AS place, ri.item FROM held JOIN response_items AS ri ON ri.response = held.n
    WHERE :to_conversation AND ri.role = 0
    UNION ALL
    SELECT 1, linked.place, linked.item FROM linked WHERE :to_conversation
  ) AS every_item
), talk AS (
  UPDATE conversations AS c
  SET next_pos = c.next_pos + (SELECT count(*) FROM whole), used_at = :used_at,
    added_at = CASE WHEN EXISTS (
      SELECT FROM whole WHERE NOT EXISTS (
        SELECT FROM conversation_items AS ci WHERE ci.item = whole.item AND ci.conversation = c.n)
    ) THEN :now ELSE c.added_at END
  FROM held
  WHERE :to_conversation AND c.tenant = :tenant AND c.id = held.conversation_id AND c.added_at > :oldest
  RETURNING c.n, c.next_pos - (SELECT count(*) FROM whole) AS base
), said AS (
  INSERT INTO conversation_items (conversation, pos, item)
  SELECT talk.n, talk.base + w.place, w.item
  FROM talk, (SELECT item, min(place) AS place FROM whole GROUP BY item) AS w
  ON CONFLICT (item, conversation) DO NOTHING
), sent AS (
  INSERT INTO webhook_deliveries (tenant, id, format, endpoint, created_at, due_at, body)
  SELECT :tenant, d.id, :format, d.endpoint, d.created_at, d.created_at, d.body
  FROM held, unnest(:delivery_ids::text[], :endpoints::text[], :deliveries_at::bigint[], :deliveries::bytea[])
    AS d (id, endpoint, created_at, body)
  ON CONFLICT (tenant, id) DO NOTHING
)
SELECT n, conversation_id FROM held;

-- name: append_events
-- Adds batches to running responses, of each at most one run of batches: for each that its fence holds, its next number.
WITH stream AS (
  SELECT place, tenant, id, fence, first_seq, status
  FROM unnest(:tenants::text[], :ids::text[], :fences::integer[], :stream_firsts::integer[], :statuses::text[])
    WITH ORDINALITY AS s (tenant, id, fence, first_seq, status, place)
), held AS (
  -- The lock keeps a new owner waiting until this is durable, and this until it is known whether there is one.
  SELECT s.place, s.first_seq, s.status, r.n, 1 + coalesce(
    (SELECT b.last_seq FROM event_batches AS b WHERE b.response = r.n ORDER BY b.first_seq DESC LIMIT 1), -1) AS next_seq
  FROM stream AS s
  CROSS JOIN LATERAL (
    SELECT n, gone, running, fence FROM responses
    WHERE tenant = s.tenant AND id = s.id AND NOT removed OFFSET 0 FOR NO KEY UPDATE
  ) AS r
  WHERE NOT r.gone AND r.running AND r.fence = s.fence
), logged AS (
  INSERT INTO event_batches (response, first_seq, last_seq, format, offsets, body)
  SELECT held.n, b.first_seq, b.last_seq, :format, b.offsets, b.body
  FROM held JOIN unnest(
    :places::integer[], :firsts::integer[], :lasts::integer[], :offsets::bytea[], :batches::bytea[])
    AS b (place, first_seq, last_seq, offsets, body) ON b.place = held.place
  WHERE held.first_seq = held.next_seq
), sampled AS (
  INSERT INTO samples (response, first_seq, body)
  SELECT held.n, s.first_seq, s.body
  FROM held JOIN unnest(:sample_places::integer[], :sample_firsts::integer[], :samples::bytea[])
    AS s (place, first_seq, body) ON s.place = held.place
  WHERE held.first_seq = held.next_seq
), noted AS (
  UPDATE responses SET status = held.status FROM held
  WHERE responses.n = held.n AND held.first_seq = held.next_seq AND responses.status <> held.status
)
SELECT place, next_seq FROM held;

-- name: find_batch
-- The body of a batch that begins with an event.
SELECT b.last_seq, b.body FROM responses AS r JOIN event_batches AS b ON b.response = r.n
WHERE r.tenant = :tenant AND r.id = :id AND NOT r.removed AND r.fence = :fence AND b.first_seq = :first_seq;

-- name: find_end
-- How a response stands, whether it is gone or not.
SELECT status, fence, snapshot FROM responses WHERE tenant = :tenant AND id = :id AND NOT removed;

-- name: claim
-- Gives a running response to a new owner, if it still has that fence and a format that is known.
UPDATE responses SET fence = fence + 1, owner = :owner
WHERE tenant = :tenant AND id = :id AND NOT removed AND CASE WHEN gone THEN false ELSE running END AND fence = :fence
  AND format <= :format
RETURNING id, parent_id, status, created_at, snapshot, conversation_id, owner, fence, keep_seconds IS NOT NULL,
  events_expired, (SELECT body FROM plans WHERE plans.response = responses.n);

-- name: find_claim
-- A running response that its owner has taken over already.
SELECT id, parent_id, status, created_at, snapshot, conversation_id, owner, fence, keep_seconds IS NOT NULL,
  events_expired, (SELECT body FROM plans WHERE plans.response = responses.n)
FROM responses
WHERE tenant = :tenant AND id = :id AND NOT removed AND CASE WHEN gone THEN false ELSE running END AND owner = :owner
  AND fence = :fence + 1;
