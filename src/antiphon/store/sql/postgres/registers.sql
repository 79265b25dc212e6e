-- The statements of the PostgreSQL store about its small tables, and about the servers that share it.

-- name: find_idempotent
-- The record of an idempotency key that has not expired.
SELECT digest, response_id, expires_at FROM idempotency WHERE tenant = :tenant AND key = :key AND expires_at > :now;

-- name: free_idempotent
-- Removes the record of an idempotency key that stands for a response.
DELETE FROM idempotency WHERE tenant = :tenant AND key = :key AND response_id = :response_id;

-- name: expire_idempotent
-- Removes some of the idempotency records whose time is up.
DELETE FROM idempotency WHERE (tenant, key) IN (
  SELECT tenant, key FROM idempotency WHERE expires_at <= :now ORDER BY expires_at LIMIT :most FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: due_endpoints
-- The endpoints with webhooks that are due, first those whose oldest has waited longest. However many wait for one, a
-- step of the index goes from it to the next.
WITH RECURSIVE found (endpoint) AS (
  SELECT min(endpoint) FROM webhook_deliveries
  UNION ALL
  SELECT (SELECT min(endpoint) FROM webhook_deliveries WHERE webhook_deliveries.endpoint > found.endpoint)
  FROM found WHERE found.endpoint IS NOT NULL
), oldest AS (
  SELECT found.endpoint,
    (SELECT min(due_at) FROM webhook_deliveries WHERE webhook_deliveries.endpoint = found.endpoint) AS due_at
  FROM found WHERE found.endpoint IS NOT NULL
)
SELECT oldest.endpoint FROM oldest WHERE oldest.due_at <= :now ORDER BY oldest.due_at;

-- name: due_deliveries
-- Some of the webhooks that are due at an endpoint, held back from other askers.
WITH due AS (
  SELECT n, due_at FROM webhook_deliveries WHERE endpoint = :endpoint AND due_at <= :now
  ORDER BY webhook_deliveries.due_at, n LIMIT :most FOR UPDATE SKIP LOCKED
), held AS (
  UPDATE webhook_deliveries SET due_at = :now + :hold_seconds WHERE n = ANY (ARRAY(SELECT n FROM due))
  RETURNING n, tenant, id, endpoint, body, created_at, attempts
)
SELECT due.due_at, due.n, held.tenant, held.id, held.endpoint, held.body, held.created_at, held.attempts
FROM held JOIN due ON due.n = held.n;

-- name: delay_delivery
-- Notes an attempt, and when the next one is due.
UPDATE webhook_deliveries SET due_at = :again_at, attempts = attempts + 1 WHERE tenant = :tenant AND id = :id;

-- name: delete_delivery
-- Removes a webhook.
DELETE FROM webhook_deliveries WHERE tenant = :tenant AND id = :id;

-- name: add_key
-- Keeps an API key.
INSERT INTO api_keys (id, tenant, name, digest, created_at, limits, revoked_at)
VALUES (:id, :tenant, :name, :digest, :created_at, :limits, :revoked_at);

-- name: find_key
-- The API key with a digest.
SELECT id, tenant, name, digest, created_at, limits, revoked_at FROM api_keys WHERE digest = :digest;

-- name: keys
-- All API keys, oldest first.
SELECT id, tenant, name, digest, created_at, limits, revoked_at FROM api_keys ORDER BY created_at, n;

-- name: revoke_key
-- Revokes an API key that is not revoked yet.
UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING 1;

-- name: codec_keys
-- All keys of blobs, oldest first.
SELECT id, secret, created_at FROM codec_keys ORDER BY created_at, n;

-- name: add_codec_key
-- Keeps a key of blobs, unless there is one by that id.
INSERT INTO codec_keys (id, secret, created_at) VALUES (:id, :secret, :created_at) ON CONFLICT (id) DO NOTHING;

-- name: tenant_key
-- The wrapped key of a tenant.
SELECT key FROM tenants WHERE tenant = :tenant;

-- name: add_tenant_key
-- Gives a tenant a key, unless it has one.
INSERT INTO tenants (tenant, key) VALUES (:tenant, :key) ON CONFLICT (tenant) DO NOTHING;

-- name: delete_tenant
-- Removes the small rows of a tenant.
WITH tenant_keys AS (
  DELETE FROM tenants WHERE tenant = :tenant
), keys AS (
  DELETE FROM api_keys WHERE tenant = :tenant
), records AS (
  DELETE FROM idempotency WHERE tenant = :tenant
), templates AS (
  DELETE FROM prompts WHERE tenant = :tenant
)
DELETE FROM webhook_deliveries WHERE tenant = :tenant;

-- name: add_prompt
-- Keeps a version of a prompt template, unless it is there.
INSERT INTO prompts (tenant, id, version, created_at, body) VALUES (:tenant, :id, :version, :created_at, :body)
ON CONFLICT DO NOTHING RETURNING 1;

-- name: find_prompt
-- A version of a prompt template; without a version the last one.
SELECT id, version, created_at, body FROM prompts
WHERE tenant = :tenant AND id = :id AND (:version::integer IS NULL OR version = :version::integer)
ORDER BY version DESC LIMIT 1;

-- name: prompts
-- All versions of a tenant's prompt templates.
SELECT id, version, created_at, body FROM prompts WHERE tenant = :tenant ORDER BY id, version;

-- name: delete_prompt
-- Removes all versions of a prompt template.
DELETE FROM prompts WHERE tenant = :tenant AND id = :id RETURNING 1;

-- name: join
-- Enters an owner, or notes that it has its lock from this database server.
INSERT INTO owners (id, lock_key, server_started) VALUES (:owner, :lock_key, pg_postmaster_start_time())
ON CONFLICT (id) DO UPDATE SET server_started = excluded.server_started;

-- name: beat
-- Raises the counter of an owner, which is entered anew if someone took it out; the counter.
INSERT INTO owners (id, counter, lock_key, server_started)
VALUES (:owner, 1, :lock_key, pg_postmaster_start_time())
ON CONFLICT (id) DO UPDATE SET counter = owners.counter + 1
RETURNING counter;

-- name: owners
-- All owners: the counter, whether the lock is held, and whether it was last taken from this run of the database server.
SELECT o.id, o.counter, EXISTS (
    SELECT FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.classid::bigint << 32) | l.objid::bigint = o.lock_key),
  o.server_started = pg_postmaster_start_time()
FROM owners AS o;

-- name: leave
-- Takes owners out.
DELETE FROM owners WHERE id = ANY (:owners::text[]);

-- name: orphans
-- The running responses of every tenant, of a format that is known, that none of these owners runs, oldest first.
SELECT r.tenant, r.id, r.owner, r.fence FROM responses AS r
WHERE NOT r.gone AND r.running AND r.format <= :format AND r.owner <> ALL (:owners::text[])
  -- Whoever has entered since the caller last looked is alive, although the caller does not name it.
  AND (r.owner = ANY (:seen::text[]) OR NOT EXISTS (SELECT FROM owners AS o WHERE o.id = r.owner))
ORDER BY r.n;

-- name: ring
-- Tells those who listen what was written.
SELECT pg_notify(:channel, p) FROM unnest(:payloads::text[]) AS p;
