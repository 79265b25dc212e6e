"""The Codex CLI against the scripted model: by hand, since its package is 424 MB (`make codex`)."""
