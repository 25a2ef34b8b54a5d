"""Prints the rollouts that a search found: a table, whole groups, or all of their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import takewhile
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evotrainer.projections.text import number, one_line
from evotrainer.records import keys
from evotrainer.records.rollout import Rollout, group_key
from evotrainer.views.folder import rollout_in_full, turn_panels

if TYPE_CHECKING:
    from rich.console import RenderableType

BESIDE = 60
"""Columns of a terminal that an attempt needs beside another one."""


def best_and_worst(group: Sequence[Rollout]) -> dict[str, str]:
    """Id of the best and of the worst attempt of a group; nothing where all earn the same."""
    graded = [r for r in group if r.reward is not None and not r.error_kind]
    if len({r.reward for r in graded}) < 2:
        return {}
    low, high = (choose(graded, key=lambda r: r.reward or 0.0) for choose in (min, max))
    return {high.id: "best", low.id: "worst"}


def table(rollouts: Sequence[Rollout], hits: Mapping[str, str]) -> str:
    """A line a rollout, and below it what was found or the beginning of its answer; columns that nobody fills go."""
    marks = best_and_worst(rollouts) if len({group_key(r) for r in rollouts}) == 1 else {}
    head = ["rollout", "branch", "seed", "split", "step", "task", "k", "reward", "outcome", "finish", "tokens", ""]
    cells = [
        [
            r.id[:12], r.branch, str(r.seed) if r.branch else "", r.split, str(r.step or ""), one_line(r.task, 40),
            str(r.k), number(r.reward), r.error_kind or r.outcome.removeprefix("unknown"), r.finish or "",
            str(r.tokens or ""), marks.get(r.id, ""),
        ]
        for r in rollouts
    ]  # fmt: skip
    used = [i for i, column in enumerate(zip(*cells, strict=True)) if any(column)]
    wide = {i: max(len(row[i]) for row in [head, *cells]) for i in used}
    lines = ["  ".join(row[i].ljust(wide[i]) for i in used).rstrip() for row in [head, *cells]]
    below = ["", *(f"    {hits.get(r.id) or one_line(r.completion, 160) or '(says nothing)'}" for r in rollouts)]
    return "\n".join(x for pair in zip(lines, below, strict=True) for x in pair if x)


def title(group: Sequence[Rollout]) -> str:
    """What the attempts of a group share, and how they went."""
    r, rewards = group[0], [x.reward for x in group if x.reward is not None]
    went = f"reward {number(min(rewards))} to {number(max(rewards))}, mean {number(fmean(rewards))}" if rewards else ""
    of = f"{keys.training(r.branch, r.seed)} " * bool(r.branch) + f"{r.split} " * bool(r.split) + f"step {r.step}"
    return ", ".join(filter(None, [f"task {one_line(r.task, 80)}", of, f"{len(group)} attempts", went]))


def in_full(group: Sequence[Rollout], width: int | None) -> list[RenderableType]:
    """All text of a group: its prompt once, then the attempts in their order; beside one another where a terminal of
    that width has room for two (None: no terminal)."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    if len(group) == 1:
        return [rollout_in_full(group[0])]
    marks = best_and_worst(group)
    prompts = [tuple(takewhile(lambda t: t.role != "assistant", r.turns)) for r in group]
    skip = len(prompts[0]) if len(set(prompts)) == 1 else 0
    heads = [Text(f"attempt {r.k}, reward {number(r.reward)} {marks.get(r.id, '')}".rstrip()) for r in group]
    texts = [Group(*turn_panels(r.turns[skip:])) for r in group]
    if width is None:
        return [*turn_panels(prompts[0][:skip]), *(part for pair in zip(heads, texts, strict=True) for part in pair)]
    each = width // min(len(group), max(1, width // BESIDE)) - 1
    panels = [Panel(text, title=head, width=each) for head, text in zip(heads, texts, strict=True)]
    return [*turn_panels(prompts[0][:skip]), Columns(panels)]


TEXTS = ("turns", "detail", "token_ids", "logprobs", "knobs")


def rollout_json(r: Rollout, hits: Mapping[str, str], full: bool) -> dict[str, Any]:
    """A rollout for scripts, with what was found in it; its texts where they are asked for."""
    every = asdict(r) if full else {f.name: getattr(r, f.name) for f in fields(r) if f.name not in TEXTS}
    return every | {"components": dict(r.components), "found": hits.get(r.id)}
