"""The wire, as data: requests, items, parts, tools, the response object, stream events, ids and SSE."""
