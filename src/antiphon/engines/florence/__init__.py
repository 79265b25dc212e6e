"""Florence-2: a vision model that answers task prompts with text, boxes and outlines."""

from __future__ import annotations

from antiphon.engines.florence.coordinates import FlorenceResult, FlorenceTask, parse_answer, render_answer, task_prompt

__all__ = ["FlorenceResult", "FlorenceTask", "parse_answer", "render_answer", "task_prompt"]
