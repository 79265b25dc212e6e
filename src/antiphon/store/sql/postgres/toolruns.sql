-- The statements of the PostgreSQL store for runs of hosted tools.

-- name: set_tool_runs
-- Adds or replaces runs of a response that still runs under this fence and has a plan; its number where it is so.
WITH held AS (
  -- The lock keeps a new owner waiting until this is durable.
  SELECT n FROM responses
  WHERE tenant = :tenant AND id = :id AND NOT removed AND CASE WHEN gone THEN false ELSE running END AND fence = :fence
    AND (SELECT true FROM plans WHERE plans.response = responses.n LIMIT 1)
  FOR NO KEY UPDATE
), written AS (
  INSERT INTO tool_runs (response, pos, state, call_id, format, name, arguments, result)
  SELECT held.n, r.pos, r.state, r.call_id, :format, r.name, r.arguments, r.result
  FROM held, unnest(:places::integer[], :states::text[], :call_ids::text[], :names::bytea[], :arguments::bytea[],
    :results::bytea[]) AS r (pos, state, call_id, name, arguments, result)
  ON CONFLICT (response, pos) DO UPDATE SET state = excluded.state, call_id = excluded.call_id, name = excluded.name,
    arguments = excluded.arguments, result = excluded.result
)
SELECT n FROM held;

-- name: tool_runs
-- The runs of a response, in order.
SELECT t.pos, t.call_id, t.name, t.arguments, t.state, t.result
FROM tool_runs AS t
WHERE t.response = (SELECT n FROM responses WHERE tenant = :tenant AND id = :id AND NOT removed) ORDER BY t.pos;
