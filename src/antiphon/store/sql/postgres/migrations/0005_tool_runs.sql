-- The runs of hosted tools of a response that another owner may go on with; they go with its plan.

CREATE TABLE tool_runs (
  response bigint NOT NULL REFERENCES plans (response) ON DELETE CASCADE,
  pos integer NOT NULL,         -- 0, 1, … over all turns of the response
  state text COLLATE "C" NOT NULL,
  call_id text COLLATE "C" NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  name bytea NOT NULL,          -- UTF-8
  arguments bytea NOT NULL,
  result bytea NOT NULL,
  PRIMARY KEY (response, pos)
);
