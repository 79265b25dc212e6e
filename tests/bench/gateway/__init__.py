"""The benchmark behind `make bench-gateway`: the server in front of an upstream, beside a peer and beside the floor.

The upstream is a dummy that costs next to nothing (`upstream.py`). The peer is codex-relay, which is written in Rust
and creates responses only. The floor (`floor.py`) is the least that a server in Python can do for a stored response.
All of them take turns in one run: figures of different runs or machines do not compare.
"""
