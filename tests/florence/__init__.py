"""Florence-2's tasks over HTTP, on a tiny model with random weights; see `make florence`."""
