-- The runs of hosted tools of a response that another owner may go on with.

CREATE TABLE tool_runs (
  response INTEGER NOT NULL,    -- the response's n
  pos INTEGER NOT NULL,         -- 0, 1, … over all turns of the response
  state TEXT NOT NULL,          -- pending, running, done
  call_id TEXT NOT NULL,
  name BLOB NOT NULL,           -- UTF-8
  arguments BLOB NOT NULL,
  result BLOB NOT NULL,
  format INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (response, pos)
);

-- They are needed as long as the plan is, and go with it.
CREATE TRIGGER tool_runs_go AFTER DELETE ON plans BEGIN
  DELETE FROM tool_runs WHERE response = old.response;
END;
