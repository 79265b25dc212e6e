-- Prompt templates, by tenant, id and version; versions of one count up from 1.

CREATE TABLE prompts (
  tenant text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  version integer NOT NULL,
  created_at bigint NOT NULL,
  format smallint NOT NULL DEFAULT 1,
  body bytea NOT NULL,
  PRIMARY KEY (tenant, id, version)
);
