"""Rollouts and files for audits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.audit.generate import rollouts as generated

from evotrainer.records.rollout import Rollout


def generate(n: int, seed: int = 0, first: int = 0) -> list[Rollout]:
    return list(generated(n, seed, 400, first))


def plain(r: Rollout) -> dict[str, Any]:
    """A rollout in the plain JSONL form."""
    turns = [
        {
            "role": t.role,
            "text": t.text,
            "tool_calls": [{"name": c.name, "arguments": c.arguments, "ok": c.ok} for c in t.tool_calls],
        }
        for t in r.turns
    ]
    same = ("id", "task", "reward", "outcome", "finish", "step", "group", "k", "tokens", "advantage", "mean_logprob")
    more = ("entropy", "error_kind", "error", "run", "branch", "policy", "split", "seed")
    return {
        **{k: getattr(r, k) for k in (*same, *more)},
        "turns": turns,
        "components": dict(r.components),
        "detail": dict(r.detail),
    }


def write_jsonl(path: Path, rollouts: Iterable[Rollout]) -> Path:
    path.write_text("".join(json.dumps(plain(r)) + "\n" for r in rollouts), encoding="utf-8")
    return path
