-- The statements of the SQLite store for runs of hosted tools.

-- name: set_tool_run
-- Adds or replaces a run of a response that still runs under this fence and has a plan.
INSERT OR REPLACE INTO tool_runs (response, pos, state, call_id, name, arguments, result)
SELECT n, ?, ?, ?, ?, ?, ? FROM responses
WHERE tenant = ? AND id = ? AND fence = ? AND gone = 0 AND status IN ('queued', 'in_progress')
  AND EXISTS (SELECT 1 FROM plans WHERE response = responses.n);

-- name: tool_runs
-- The runs of a response, in order.
SELECT pos, call_id, name, arguments, state, result FROM tool_runs
WHERE response = (SELECT n FROM responses WHERE tenant = :tenant AND id = :id) ORDER BY pos;
