-- Prompt templates, by tenant, id and version; versions of one count up from 1.

CREATE TABLE prompts (
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,  -- seconds since the epoch
  format INTEGER NOT NULL DEFAULT 1,
  body BLOB NOT NULL,
  PRIMARY KEY (tenant, id, version)
) WITHOUT ROWID;
