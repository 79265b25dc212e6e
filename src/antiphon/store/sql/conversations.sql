-- The statements of the SQLite store about conversations. One whose last addition is not after `oldest` has expired.

-- name: insert_conversation
-- Adds a conversation.
INSERT INTO conversations (tenant, id, created_at, added_at, used_at, size, metadata) VALUES (?, ?, ?, ?, ?, 0, ?);

-- name: find_conversation
-- The number of a conversation, and the place of its last item.
SELECT n, coalesce((SELECT max(pos) FROM conversation_items WHERE conversation = conversations.n), 0)
FROM conversations WHERE tenant = ? AND id = ? AND added_at > ?;

-- name: get_conversation
-- A conversation.
SELECT created_at, metadata FROM conversations WHERE tenant = :tenant AND id = :id AND added_at > :oldest;

-- name: set_metadata
-- Replaces the metadata of a conversation.
UPDATE conversations SET metadata = ?, used_at = ? WHERE n = ?;

-- name: insert_conversation_item
-- Puts an item into a conversation, unless that has it.
INSERT OR IGNORE INTO conversation_items (conversation, pos, item) VALUES (?, ?, ?);

-- name: insert_items_of_response
-- Puts the items of a response, in their order, into a conversation, those left out that it has.
INSERT OR IGNORE INTO conversation_items (conversation, pos, item)
SELECT ?, ? + row_number() OVER (ORDER BY role, pos), item FROM response_items WHERE response = ?;

-- name: size_added
-- How many items stand after a place in a conversation, and their bytes.
SELECT count(*), coalesce(sum(length(items.body)), 0)
FROM conversation_items AS ci JOIN items ON items.n = ci.item WHERE ci.conversation = ? AND ci.pos > ?;

-- name: note_addition
-- Notes that a conversation has grown.
UPDATE conversations SET added_at = ?, used_at = ?, size = size + ? WHERE n = ?;

-- name: conversation_item_ids
-- The ids of the items of a conversation, oldest first; one row of NULL where it has none.
SELECT items.id FROM conversations AS c
LEFT JOIN conversation_items AS ci ON ci.conversation = c.n
LEFT JOIN items ON items.n = ci.item
WHERE c.tenant = :tenant AND c.id = :id AND c.added_at > :oldest
ORDER BY ci.pos;

-- name: find_conversation_item
-- The place, the number and the bytes of an item of a conversation.
SELECT ci.pos, ci.item, length(items.body) FROM items
JOIN conversation_items AS ci ON ci.item = items.n AND ci.conversation = ?
WHERE items.tenant = ? AND items.id = ?;

-- name: delete_conversation_item
-- Takes an item out of a conversation.
DELETE FROM conversation_items WHERE conversation = ? AND pos = ?;

-- name: shrink_conversation
-- Notes that a conversation has lost an item.
UPDATE conversations SET size = size - ? WHERE n = ?;

-- name: conversation_size
-- The bytes of the items of a conversation.
SELECT size FROM conversations WHERE n = ?;

-- name: items_of_conversation
-- The numbers of the items of a conversation.
SELECT item FROM conversation_items WHERE conversation = ?;

-- name: delete_conversation_items
-- Takes all items out of a conversation.
DELETE FROM conversation_items WHERE conversation = ?;

-- name: delete_conversation
-- Removes the row of a conversation.
DELETE FROM conversations WHERE n = ?;

-- name: find_expired_conversations
-- Some of the conversations whose time is up.
SELECT n, tenant, id FROM conversations WHERE added_at <= ? ORDER BY added_at LIMIT ?;

-- name: conversations_of_tenant
-- Some of the conversations of a tenant.
SELECT n, tenant, id FROM conversations WHERE tenant = ? LIMIT ?;

-- name: set_conversation_used
-- Notes when a conversation was last used.
UPDATE conversations SET used_at = ? WHERE tenant = ? AND id = ?;

-- name: conversations_by_use
-- All conversations, least recently used first.
SELECT tenant, id, used_at FROM conversations ORDER BY used_at, n;
