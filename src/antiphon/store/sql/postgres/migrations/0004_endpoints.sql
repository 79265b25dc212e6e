-- Webhooks are looked for by endpoint, so that those that wait for one are not in the way of another's.

DROP INDEX webhook_deliveries_by_due;
CREATE INDEX webhook_deliveries_by_endpoint ON webhook_deliveries (endpoint, due_at, n);
