-- The statements of the PostgreSQL store that remove. A response that nothing needs any more is marked as removed, which
-- hides it and its items at once, and is erased after a time of grace: another server may be making a turn on top of it.
--
-- Walks take each step by LATERAL with OFFSET 0: it finds its row by key, whatever the planner thinks of the tables.

-- name: set_gone_by_id
-- Makes a live response that does not run gone; its number.
UPDATE responses SET gone_at = :now, log_ended_at = NULL, snapshot = ''
WHERE tenant = :tenant AND id = :id AND NOT removed AND NOT gone AND NOT running AND expires_at > :now
RETURNING n;

-- name: set_gone
-- Makes responses gone; the numbers of those that were not and that do not run.
UPDATE responses SET gone_at = :now, log_ended_at = NULL, snapshot = ''
WHERE n = ANY (:numbers::bigint[]) AND CASE WHEN gone THEN false ELSE NOT running END
RETURNING n;

-- name: find_live
-- A live response: its number, and whether it runs.
SELECT n, running FROM responses
WHERE tenant = :tenant AND id = :id AND NOT removed AND NOT gone AND (running OR expires_at > :now);

-- name: gone_then
-- Of a response, its ancestors and all that descend from any of them: those that went at that very time.
WITH RECURSIVE named (n, parent) AS (
  SELECT n, parent FROM responses WHERE tenant = :tenant AND id = :id AND NOT removed
  UNION ALL
  SELECT n, parent FROM responses WHERE tenant = :tenant AND id = :id AND removed
), ancestor (n, parent) AS (
  SELECT n, parent FROM named
  UNION
  SELECT p.n, p.parent FROM ancestor
  CROSS JOIN LATERAL (SELECT n, parent FROM responses WHERE n = ancestor.parent OFFSET 0) AS p
), kin (n) AS (
  SELECT n FROM ancestor
  UNION
  SELECT c.n FROM kin CROSS JOIN LATERAL (SELECT n FROM responses WHERE parent = kin.n OFFSET 0) AS c
)
SELECT id FROM responses WHERE n = ANY (ARRAY(SELECT n FROM kin)) AND gone_at = :now ORDER BY n;

-- name: delete_events
-- Removes the events of responses, what was sampled for them, and their plans.
WITH sampled AS (
  DELETE FROM samples WHERE response = ANY (:numbers::bigint[])
), planned AS (
  DELETE FROM plans WHERE response = ANY (:numbers::bigint[])
)
DELETE FROM event_batches WHERE response = ANY (:numbers::bigint[]);

-- name: lock_line
-- Locks gone responses that nothing needs, and upwards those that only they need, up to the first that stays.
WITH RECURSIVE line (n, parent, child) AS (
  SELECT n, parent, 0::bigint FROM responses WHERE n = ANY (:numbers::bigint[])
  UNION
  SELECT p.n, p.parent, line.n
  FROM line
  CROSS JOIN LATERAL (SELECT gone FROM responses WHERE n = line.n OFFSET 0) AS r
  CROSS JOIN LATERAL (SELECT n, parent FROM responses WHERE n = line.parent OFFSET 0) AS p
  WHERE r.gone AND (
    SELECT true FROM responses AS c WHERE c.parent = line.n AND c.n <> line.child AND NOT c.removed LIMIT 1) IS NULL
)
SELECT n FROM responses WHERE n = ANY (ARRAY(SELECT n FROM line)) ORDER BY n FOR UPDATE;

-- name: mark_removed
-- Marks those of the locked responses that are gone and that nothing needs, but for those that are retained here.
WITH RECURSIVE line (n, parent) AS (
  SELECT r.n, r.parent FROM unnest(:numbers::bigint[]) AS locked (n)
  CROSS JOIN LATERAL (SELECT * FROM responses WHERE n = locked.n OFFSET 0) AS r
  WHERE r.gone AND NOT r.removed
    AND (SELECT true FROM responses AS c WHERE c.parent = r.n AND NOT c.removed LIMIT 1) IS NULL
    AND NOT EXISTS (
      SELECT FROM unnest(:tenants::text[], :ids::text[]) AS k (tenant, id) WHERE k.tenant = r.tenant AND k.id = r.id)
  UNION
  SELECT p.n, p.parent FROM line
  CROSS JOIN LATERAL (SELECT * FROM responses WHERE n = line.parent OFFSET 0) AS p
  WHERE p.gone AND NOT p.removed AND p.n = ANY (:numbers::bigint[])
    AND (SELECT true FROM responses AS c WHERE c.parent = p.n AND c.n <> line.n AND NOT c.removed LIMIT 1) IS NULL
    AND NOT EXISTS (
      SELECT FROM unnest(:tenants::text[], :ids::text[]) AS k (tenant, id) WHERE k.tenant = p.tenant AND k.id = p.id)
)
UPDATE responses SET removed_at = :now WHERE n = ANY (ARRAY(SELECT n FROM line)) RETURNING n, parent;

-- name: find_unmarked
-- Gone responses that nothing needs and that are not marked: whoever retained them has ended.
SELECT n FROM responses AS r WHERE gone AND NOT removed
  AND (SELECT true FROM responses AS c WHERE c.parent = r.n AND NOT c.removed LIMIT 1) IS NULL;

-- name: lock_retained
-- Locks those of a list of responses that are not marked: whether each is gone.
SELECT r.n, r.gone FROM unnest(:tenants::text[], :ids::text[]) AS k (tenant, id)
CROSS JOIN LATERAL (
  SELECT n, gone FROM responses WHERE tenant = k.tenant AND id = k.id AND NOT removed OFFSET 0 FOR UPDATE
) AS r;

-- name: refresh_removed
-- Begins the time of grace anew for responses that are retained here, and for their ancestors.
WITH RECURSIVE line (n, parent) AS (
  SELECT r.n, r.parent FROM unnest(:tenants::text[], :ids::text[]) AS k (tenant, id)
  CROSS JOIN LATERAL (
    SELECT n, parent FROM responses WHERE tenant = k.tenant AND id = k.id AND removed OFFSET 0
  ) AS r
  UNION
  SELECT p.n, p.parent FROM line
  CROSS JOIN LATERAL (SELECT * FROM responses WHERE n = line.parent OFFSET 0) AS p
  WHERE p.removed
)
UPDATE responses SET removed_at = :now WHERE n = ANY (ARRAY(SELECT n FROM line)) AND removed_at IS NOT NULL;

-- name: find_hidden
-- The number of a response that is hidden.
SELECT n FROM responses WHERE tenant = :tenant AND id = :id AND removed ORDER BY n DESC LIMIT 1;

-- name: lock_response
-- Locks a response: its parent, and whether it is hidden.
SELECT parent, removed FROM responses WHERE n = :number FOR UPDATE;

-- name: unhide
-- Takes the mark from a locked response.
UPDATE responses SET removed_at = NULL WHERE n = :number;

-- name: find_kin
-- A response, its ancestors and all that descend from any of them, locked: whether each is gone, runs and is live.
WITH RECURSIVE ancestor (n, parent, depth) AS (
  SELECT n, parent, 0 FROM responses WHERE n = :number
  UNION ALL
  SELECT p.n, p.parent, ancestor.depth + 1 FROM ancestor
  CROSS JOIN LATERAL (SELECT n, parent FROM responses WHERE n = ancestor.parent OFFSET 0) AS p
), kin (n) AS (
  SELECT n FROM (SELECT n FROM ancestor ORDER BY depth DESC LIMIT 1) AS oldest
  UNION ALL
  SELECT c.n FROM kin CROSS JOIN LATERAL (SELECT n FROM responses WHERE parent = kin.n OFFSET 0) AS c
)
SELECT n, id, NOT gone, running, NOT gone AND (running OR expires_at > :now)
FROM responses WHERE n = ANY (ARRAY(SELECT n FROM kin)) AND NOT removed ORDER BY n FOR UPDATE;

-- name: find_expired
-- Some of the responses whose time is up, locked.
SELECT n FROM responses WHERE NOT gone AND NOT running AND expires_at < 'Infinity' AND expires_at <= :now
ORDER BY expires_at LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: find_least_used
-- Some of the responses that limits may evict, least recently used first, locked, with about the bytes that each holds.
SELECT r.n, octet_length(r.snapshot)
  + (SELECT coalesce(sum(octet_length(b.body)), 0) FROM event_batches AS b WHERE b.response = r.n)
  + (SELECT coalesce(sum(octet_length(i.body)), 0) FROM response_items AS ri JOIN items AS i ON i.n = ri.item
    WHERE ri.response = r.n)
FROM responses AS r WHERE NOT r.gone AND NOT r.running
ORDER BY r.used_at, r.n LIMIT :most FOR UPDATE OF r SKIP LOCKED;

-- name: set_used
-- Notes when responses were last used.
WITH used AS MATERIALIZED (
  SELECT r.n, k.used_at
  FROM unnest(:tenants::text[], :ids::text[], :times::double precision[]) AS k (tenant, id, used_at)
  CROSS JOIN LATERAL (SELECT n FROM responses WHERE tenant = k.tenant AND id = k.id AND NOT removed OFFSET 0) AS r
)
UPDATE responses AS r SET used_at = used.used_at FROM used
WHERE r.n = used.n AND r.used_at < used.used_at AND r.n = ANY (ARRAY(SELECT n FROM used));

-- name: expire_logs
-- Removes the events of some responses whose log has been whole for long enough; how many responses.
WITH old AS (
  SELECT n FROM responses WHERE log_ended_at <= :before ORDER BY log_ended_at LIMIT :most FOR UPDATE SKIP LOCKED
), noted AS (
  UPDATE responses SET log_ended_at = NULL, events_expired = true WHERE n = ANY (ARRAY(SELECT n FROM old))
), dropped AS (
  DELETE FROM event_batches WHERE response = ANY (ARRAY(SELECT n FROM old))
)
SELECT count(*) FROM old;

-- name: find_erasable
-- Some of the removed responses whose time of grace is over, locked.
SELECT r.n FROM responses AS r WHERE r.removed AND r.removed_at <= :before
  AND (SELECT true FROM responses AS c WHERE c.parent = r.n AND (NOT c.removed OR c.removed_at > :before) LIMIT 1) IS NULL
ORDER BY r.removed_at, r.n DESC LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: erase_responses
-- Erases locked responses, if nothing has needed them since; the numbers of their items.
WITH erased AS (
  DELETE FROM responses AS r WHERE r.n = ANY (:numbers::bigint[]) AND r.removed_at <= :before
    AND (SELECT true FROM responses AS c WHERE c.parent = r.n AND (NOT c.removed OR c.removed_at > :before) LIMIT 1)
      IS NULL
  RETURNING r.n
)
DELETE FROM response_items WHERE response = ANY (ARRAY(SELECT n FROM erased)) RETURNING item;

-- name: lock_items
-- Locks items, so that nothing can begin to refer to them.
SELECT n FROM items WHERE n = ANY (:numbers::bigint[]) ORDER BY n FOR UPDATE;

-- name: delete_items
-- Removes those of the locked items that neither a response nor a conversation has.
DELETE FROM items AS i WHERE i.n = ANY (:numbers::bigint[])
  AND (SELECT true FROM response_items AS ri WHERE ri.item = i.n LIMIT 1) IS NULL
  AND (SELECT true FROM conversation_items AS ci WHERE ci.item = i.n LIMIT 1) IS NULL;

-- name: lock_tenant
-- Locks some responses of a tenant.
SELECT n FROM responses WHERE n = ANY (ARRAY(
  (SELECT n FROM responses WHERE tenant = :tenant AND NOT removed LIMIT :most)
  UNION ALL
  (SELECT n FROM responses WHERE tenant = :tenant AND removed LIMIT :most)
)) ORDER BY n FOR UPDATE;

-- name: delete_responses
-- Removes responses whole, whatever their state; the numbers of their items.
WITH gone AS (
  DELETE FROM responses WHERE n = ANY (:numbers::bigint[])
), logged AS (
  DELETE FROM event_batches WHERE response = ANY (:numbers::bigint[])
), sampled AS (
  DELETE FROM samples WHERE response = ANY (:numbers::bigint[])
), planned AS (
  DELETE FROM plans WHERE response = ANY (:numbers::bigint[])
)
DELETE FROM response_items WHERE response = ANY (:numbers::bigint[]) RETURNING item;
