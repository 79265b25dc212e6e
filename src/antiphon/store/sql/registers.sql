-- The statements of the SQLite store about its small tables.

-- name: find_idempotent
-- The record of an idempotency key that has not expired.
SELECT digest, response_id, expires_at FROM idempotency WHERE tenant = :tenant AND key = :key AND expires_at > :now;

-- name: set_idempotent
-- Keeps the record of an idempotency key, in place of one that has expired.
INSERT OR REPLACE INTO idempotency (tenant, key, digest, response_id, expires_at) VALUES (?, ?, ?, ?, ?);

-- name: free_idempotent
-- Removes the record of an idempotency key that stands for a response.
DELETE FROM idempotency WHERE tenant = ? AND key = ? AND response_id = ?;

-- name: expire_idempotent
-- Removes some of the records whose time is up.
DELETE FROM idempotency WHERE (tenant, key) IN (
  SELECT tenant, key FROM idempotency WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
);

-- name: insert_delivery
-- Adds a webhook to send, unless the tenant has one by that id.
INSERT OR IGNORE INTO webhook_deliveries (tenant, id, endpoint, created_at, due_at, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: due_endpoints
-- The endpoints with webhooks that are due, first those whose oldest has waited longest. However many wait for one, a
-- step of the index goes from it to the next.
WITH RECURSIVE found (endpoint) AS (
  SELECT min(endpoint) FROM webhook_deliveries
  UNION ALL
  SELECT (SELECT min(endpoint) FROM webhook_deliveries WHERE endpoint > found.endpoint)
  FROM found WHERE found.endpoint IS NOT NULL
), oldest AS (
  SELECT endpoint, (SELECT min(due_at) FROM webhook_deliveries WHERE endpoint = found.endpoint) AS due_at
  FROM found WHERE endpoint IS NOT NULL
)
SELECT endpoint FROM oldest WHERE due_at <= :now ORDER BY due_at;

-- name: due_deliveries
-- Some of the webhooks that are due at an endpoint, in the order in which they became so.
SELECT n, due_at, tenant, id, endpoint, body, created_at, attempts FROM webhook_deliveries
WHERE endpoint = ? AND due_at <= ? ORDER BY due_at, n LIMIT ?;

-- name: hold_delivery
-- Holds a webhook back.
UPDATE webhook_deliveries SET due_at = ? WHERE n = ?;

-- name: delay_delivery
-- After an attempt at a webhook: when the next one is due.
UPDATE webhook_deliveries SET attempts = attempts + 1, due_at = ? WHERE tenant = ? AND id = ?;

-- name: delete_delivery
-- Removes a webhook.
DELETE FROM webhook_deliveries WHERE tenant = ? AND id = ?;

-- name: insert_key
-- Adds an API key, unless there is one by that id or with that digest.
INSERT OR IGNORE INTO api_keys (id, tenant, name, digest, created_at, limits, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: find_key
-- The API key with a digest.
SELECT id, tenant, name, digest, created_at, limits, revoked_at FROM api_keys WHERE digest = :digest;

-- name: keys
-- All API keys, oldest first.
SELECT id, tenant, name, digest, created_at, limits, revoked_at FROM api_keys ORDER BY created_at, n;

-- name: revoke_key
-- Revokes an API key, unless it is revoked.
UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL;

-- name: codec_keys
-- All keys of blobs, oldest first.
SELECT id, secret, created_at FROM codec_keys ORDER BY created_at, n;

-- name: insert_codec_key
-- Adds a key of blobs, unless there is one by that id.
INSERT OR IGNORE INTO codec_keys (id, secret, created_at) VALUES (?, ?, ?);

-- name: tenant_key
-- The wrapped key of a tenant.
SELECT key FROM tenants WHERE tenant = :tenant;

-- name: insert_tenant_key
-- Gives a tenant a key, unless it has one.
INSERT OR IGNORE INTO tenants (tenant, key) VALUES (?, ?);

-- name: delete_tenant_key
-- Removes the key of a tenant.
DELETE FROM tenants WHERE tenant = ?;

-- name: delete_keys_of_tenant
-- Removes the API keys of a tenant.
DELETE FROM api_keys WHERE tenant = ?;

-- name: delete_idempotent_of_tenant
-- Removes the idempotency records of a tenant.
DELETE FROM idempotency WHERE tenant = ?;

-- name: delete_deliveries_of_tenant
-- Removes the webhooks of a tenant.
DELETE FROM webhook_deliveries WHERE tenant = ?;

-- name: insert_prompt
-- Adds a version of a prompt template, unless it is there.
INSERT OR IGNORE INTO prompts (tenant, id, version, created_at, body) VALUES (?, ?, ?, ?, ?);

-- name: find_prompt
-- A version of a prompt template; without a version the last one.
SELECT id, version, created_at, body FROM prompts
WHERE tenant = :tenant AND id = :id AND (:version IS NULL OR version = :version) ORDER BY version DESC LIMIT 1;

-- name: prompts
-- All versions of a tenant's prompt templates.
SELECT id, version, created_at, body FROM prompts WHERE tenant = :tenant ORDER BY id, version;

-- name: delete_prompt
-- Removes all versions of a prompt template.
DELETE FROM prompts WHERE tenant = ? AND id = ?;

-- name: delete_prompts_of_tenant
-- Removes the prompt templates of a tenant.
DELETE FROM prompts WHERE tenant = ?;
