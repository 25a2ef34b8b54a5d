"""A learning curve alone, without rollouts: a CSV, JSON or JSON-lines file of steps with reward and outcome."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evotrainer.errors import EvoTrainerError
from evotrainer.importers.base import Skipped
from evotrainer.importers.lines import values
from evotrainer.importers.tolerant import content, number
from evotrainer.records.text import counted, quoted

MAX_BYTES = 64 << 20
STEP = ("step", "global_step", "training_step", "train_step", "iteration", "iter", "epoch")
NAMES: Mapping[str, tuple[str, ...]] = {
    "reward": (
        "reward", "mean_reward", "reward_mean", "reward/mean", "train/reward", "avg_reward", "rewards/mean",
        "critic/rewards/mean", "critic/score/mean", "train/reward/mean", "rollout/reward",
    ),
    "score": (
        "score", "outcome", "accuracy", "acc", "correct", "pass_rate", "success_rate", "solve_rate", "pass@1",
        "eval_accuracy", "eval/accuracy", "test_accuracy", "val_accuracy", "val_acc", "val/accuracy",
        "eval/pass@1", "val/acc",
    ),
}  # fmt: skip
"""Key of a curve -> columns that are taken for it, the first that is there; in any letter case."""
OTHERS = frozenset((
    "frac_reward_zero_std", "dead_fail", "dead_pass", "reward_std", "entropy", "kl", "grad_norm", "ratio_max", "ess",
    "turns", "ngram_repetition", "kept_groups", "negative_share", "completions/mean_length",
    "completions/clipped_ratio",
))  # fmt: skip
"""Columns that are taken by their own name."""
LEAST = 2


def read_curve(path: Path) -> tuple[tuple[dict[str, float], ...], list[Skipped]] | None:
    """(rows in the order of their steps, rows that could not be read); None where the file is no curve."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        listed = list(_rows(path))
    except (EvoTrainerError, OSError, ValueError, csv.Error):
        return None
    rows: dict[float, dict[str, float]] = {}
    skipped: list[Skipped] = []
    unread: dict[str, list[str]] = {}
    for n, raw in listed:
        row, words = _row(raw) if isinstance(raw, dict) else ({}, {})
        if len(row) < 2 or "step" not in row:
            skipped.append(Skipped(f"{path} row {n}", "it has no number for a step and its reward or outcome"))
        else:
            # trainers log one step in several rows: what the later one adds
            rows.setdefault(row["step"], {}).update(row)
            for key, word in words.items():
                unread.setdefault(key, []).append(f"{word} in row {n}")
    found = tuple(rows[s] for s in sorted(rows))
    known = any("reward" in r or "score" in r for r in found)
    if not known or len(found) < LEAST or len(found) < len(skipped):
        return None
    # one line a column: a log may say NaN at every step that was not evaluated
    told = [f"{counted(len(x), 'value')} of {k} no number: {', '.join(x[:3])}" for k, x in unread.items()]
    return found, skipped + [Skipped(str(path), reason) for reason in told]


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix.lower() in (".csv", ".tsv"):
        text = content(path, MAX_BYTES, "give fewer steps").decode("utf-8-sig", errors="replace")
        yield from enumerate(
            csv.DictReader(io.StringIO(text), delimiter="\t" if path.suffix.lower() == ".tsv" else ","), 2
        )
        return
    for n, value in values(path, constants=True):
        if isinstance(value, dict) and isinstance(value.get("log_history"), list):  # a trainer's state
            yield from enumerate(value["log_history"], 1)
        elif not isinstance(value, Skipped):
            yield n, value


def _row(raw: Mapping[Any, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers of a row by the curve's keys; by the same keys what stands in a number's place (a word, NaN)."""
    given: dict[str, float | None] = {}
    words: dict[str, str] = {}
    for k, v in raw.items():
        if k is not None and (name := _plain(str(k))) and given.get(name) is None:
            given[name] = _number(v)
            if given[name] is None and v is not None and str(v).strip():
                words[name] = quoted(v, 40)
    step = next((given[k] for k in STEP if given.get(k) is not None), None)
    out = {} if step is None else {"step": step}
    for key, names in NAMES.items():
        value = next((x for k in names if (x := given.get(k)) is not None), None)
        if value is not None:
            out[key] = value
    out |= {k: x for k in OTHERS & given.keys() if (x := given[k]) is not None}
    lost = {next((key for key, names in NAMES.items() if k in names), k): word for k, word in words.items()}
    return out, {k: word for k, word in lost.items() if k not in out and (k in NAMES or k in OTHERS)}


def _plain(column: str) -> str:
    """A column's name in lower case; of a W&B export ("RUN - NAME", with NAME__MIN and NAME__MAX beside it) the plain
    one; "" for one that is none."""
    name = column.strip().lower()
    return "" if name.endswith(("__min", "__max")) else name.rpartition(" - ")[2].lstrip("_")


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    x = number(value)
    return x if x is not None and math.isfinite(x) else None
