"""A small chat policy for the trl trainer's tests: Qwen3's architecture, its own tokenizer and template."""

from __future__ import annotations

from pathlib import Path

from reverse_world import ReverseWorld

SHAPE = {"d": 48, "layers": 2, "heads": 2, "kv_heads": 1, "hidden": 96, "context": 128}


def make(out: Path, steps: int = 110) -> Path:
    """Writes single digits, the right one about half of the time."""
    from evotrainer.trainers.trl import warm_start

    warm_start(ReverseWorld(length=1).demonstrations(1500, 0), (), SHAPE, steps, 32, 8e-3, 0, out)
    return out
