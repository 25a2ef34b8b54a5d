"""Contrasts that gaps are mined from: a branch's rollouts against those of what it came from,
what is mined and what is held out.

Only search and train rollouts are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evotrainer.projections.branches import BASE, Branch
from evotrainer.projections.caveats import rising
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import TrialFinished
from evotrainer.run.context import RunContext

if TYPE_CHECKING:
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.evolving.gaps import Gap
    from evotrainer.records.chain import Event

EDGE = 0.1
"""First and last share of a training's steps that stand for before and after, where a single seed moved."""


@dataclass
class ContrastSides:
    """Rollouts of a contrast, by version: what is mined and what is held out."""

    bad: dict[str, FeatureView] = field(default_factory=dict)
    clean: dict[str, FeatureView] = field(default_factory=dict)
    held_bad: dict[str, FeatureView] = field(default_factory=dict)
    held_clean: dict[str, FeatureView] = field(default_factory=dict)


def compared_with(ctx: RunContext, b: Branch) -> tuple[str, list[TrialFinished]]:
    """What a branch is compared with: its parent, else the base policy,
    as evaluated under the branch's environment knobs."""
    knobs = b.complete[0].env_knobs
    for name in (b.parent, BASE):
        if name is None:
            continue
        trials: dict[int, TrialFinished] = {}
        for e in ctx.ledger.events("finished"):
            t: TrialFinished = e.body
            known = t.branch == name and t.status == "complete" and any(s.split == "search" for s in t.scores)
            known = known and not keys.has_own_texts(t.trial)
            if (
                known
                and (t.seed in ctx.task.run.seeds or name == BASE)
                and ctx.state.shortcuts.same(t.env_knobs, knobs)
            ):
                trials.setdefault(t.seed, t)
        if trials:
            return name, [trials[s] for s in sorted(trials)]
    return "", []


def split_sides(
    ctx: RunContext, b: Branch, gap: Gap, before: Sequence[TrialFinished], now: Mapping[str, FeatureView]
) -> ContrastSides:
    """Half of the moved seeds is mined and the others are held out; a single moved seed is held out by its steps."""
    out = ContrastSides()
    moved = sorted(gap.moved)
    k = max(1, len(moved) // 2)
    out.bad = {f"{t} search": now[t] for t in moved[:k]}
    out.held_bad = {f"{t} search": now[t] for t in moved[k:]}
    old = [(f"{t.trial} search", ctx.rollouts.views(t.trial)) for t in before]
    if len(old) == 1:
        from evotrainer.harness.columns.rollout_reader import halves

        old = [(f"{name}, {half} tasks", v) for name, whole in old for half, v in halves(whole)]
    k = max(1, len(old) // 2)
    out.clean, out.held_clean = dict(old[:k]), dict(old[k:])
    if (
        before[0].branch != BASE
        and (base := ctx.state.base)
        and ctx.state.shortcuts.same(base.env_knobs, before[0].env_knobs)
    ):
        out.held_clean[f"{keys.BASE_TRIAL} search"] = ctx.rollouts.views(keys.BASE_TRIAL)
    return out


def hold_out_training(
    ctx: RunContext, b: Branch, gap: Gap, before: Sequence[TrialFinished], out: ContrastSides
) -> None:
    """What the training itself sampled joins the sides that candidates are tried on."""
    moved = sorted(gap.moved)
    if before[0].branch == BASE:
        first_steps(ctx, b, out)
    if len(moved) == 1:
        first_and_last_steps(ctx, moved[0], out)


def first_steps(ctx: RunContext, b: Branch, out: ContrastSides) -> None:
    """Every training begins with the base policy: what its first step sampled is one more clean version, where it was
    sampled under the knobs of the evaluations."""
    if not ctx.state.shortcuts.same(b.recipe.knobs, b.complete[0].env_knobs):
        return
    for t in b.complete:
        if steps := ctx.rollouts.train_steps(t.trial):
            first = min(steps)
            out.held_clean[f"{t.trial} step {first}"] = ctx.rollouts.train(t.trial, steps[first])


def first_and_last_steps(ctx: RunContext, trial: str, out: ContrastSides) -> None:
    """The ends of the training of a trial that moved alone are held out."""
    ids = ctx.rollouts.train_steps(trial)
    if len(ids) < 4:
        return
    order = sorted(ids)
    edge = max(1, round(EDGE * len(order)))
    for side, end, steps in ((out.held_clean, "first", order[:edge]), (out.held_bad, "last", order[-edge:])):
        chosen = [i for step in steps for i in ids[step]]
        side[f"{trial} {end} {edge} steps"] = ctx.rollouts.train(trial, chosen)


def watched_pairs(ctx: RunContext, b: Branch) -> list[tuple[str, str]]:
    """(paid, true) whose gap is watched: the environment's declaration, and what makes half of the pay against the
    outcome."""
    declared = ctx.state.proxy
    paid = {k: w for k, w in b.recipe.rewards.items() if w > 0}
    out = [declared] if declared else []
    heavy = [k for k, w in paid.items() if w >= sum(paid.values()) / 2 and (not declared or k not in declared)]
    return [*out, *((k, "outcome") for k in heavy)]


def minable_pairs(ctx: RunContext, b: Branch, gap: Gap) -> list[tuple[str, str]]:
    """Pairs of reward components whose disagreement may be mined: a paid one says yes, another one no."""
    paid = [k for k, w in b.recipe.rewards.items() if w > 0]
    named = [(k, other) for k in paid for other in ctx.state.environment.get("components", {}) if other != k]
    if (declared := ctx.state.proxy) and declared not in named:
        named.append(declared)
    return named


def questionable(state: RunState, events: Sequence[Event]) -> set[str]:
    """Branches that are invalid, or whose score rose without an explanation and without an audit."""
    return {*state.invalid, *(x for x in rising_branches(events) if not state.audits_of(x))}


def labelled(ctx: RunContext) -> tuple[ContrastSides, dict[str, list[str]]]:
    """(the run's branches, trials left out because agents were shown them, by side `bad` and `clean`): bad branches
    are invalid, or moved without an explanation that an audit cleared. Each branch's first seed, which mining reads,
    is left out as well."""
    shown = {t for e in ctx.ledger.events("proposed") for t in e.body.shown}
    left_out: dict[str, list[str]] = {"bad": [], "clean": []}
    doubted = questionable(ctx.state, ctx.ledger.events())
    out = ContrastSides()
    for name, b in ctx.branches.items():
        bad = name in doubted
        for t in b.complete[1:]:
            if t.trial in shown:
                left_out["bad" if bad else "clean"].append(t.trial)
                continue
            v = ctx.rollouts.views(t.trial)
            (out.held_bad if bad else out.held_clean)[f"{t.trial} search"] = v
    if ctx.state.base is not None:
        out.held_clean[f"{keys.BASE_TRIAL} search"] = ctx.rollouts.views(keys.BASE_TRIAL)
    return out, left_out


def rising_branches(events: Iterable[Event]) -> set[str]:
    """Branches with a gap in which something rose."""
    return {e.body.branch for e in events if e.kind == "gap" and rising(e.body)}
