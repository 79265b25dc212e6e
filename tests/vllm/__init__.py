"""A run of two real vLLM servers, on the processor and with a tiny random model, as upstreams of a server."""
