"""Bundles that passed every gate and are no champion: what became of them."""

from __future__ import annotations

from evotrainer.errors import ConfigError
from evotrainer.projections.branches import Branch
from evotrainer.projections.state import RunState
from evotrainer.records.recipe import BUNDLE
from evotrainer.records.verdicts import Effect


def held_back(state: RunState, name: str) -> str:
    """Why a bundle whose verdict says promote was not promoted, in one sentence; empty where that is not so."""
    b = state.branches.get(name)
    v = b.verdict if b else None
    if not b or not b.intervention or b.intervention.factor != BUNDLE or b.version is not None:
        return ""
    if not v or v.kind != "promote" or b.invalid is not None:
        return ""
    head = f"{name} beat its control by {_points(v.effect)} points, but was not promoted" if v.effect else name
    mine = {k.factor: k.kept for k in state.knockouts if k.branch == name}
    out = sorted(f for f, kept in mine.items() if not kept)
    if not out:
        return f"{head} so far: what each of its changes adds by itself is not measured yet"
    if len(out) == len(b.intervention.new):
        return f"{head}: without any one of its changes it did as well"
    return f"{head}: without {', '.join(out)}, which added nothing, {_rest(_left(state, b, out))}"


def being_measured(state: RunState, name: str) -> bool:
    """Did a bundle pass every gate, and is it not yet known what each of its changes adds by itself?"""
    return (
        state.closed_by is None
        and bool(held_back(state, name))
        and all(k.kept for k in state.knockouts if k.branch == name)
    )


def _left(state: RunState, b: Branch, out: list[str]) -> Branch | None:
    """The branch of what is left of a bundle without the changes that were taken out."""
    assert b.intervention is not None
    kept = {f: v for f, v in b.intervention.new.items() if f not in out}
    try:
        wanted = state.branches[b.parent or ""].recipe.with_changes(kept).hash
    except (ConfigError, KeyError):
        return None
    return next((x for x in state.branches.values() if x.recipe.hash == wanted and not x.matches), None)


def _rest(left: Branch | None) -> str:
    v = left.verdict if left else None
    if left is None or v is None:
        return "the rest is not judged yet"
    told = f" ({left.branch}: {_points(v.effect, brief=True)})" if v.effect else f" ({left.branch})"
    if left.version is not None:
        return f"the rest was promoted{told}"
    if left.invalid is not None or v.kind in ("invalid", "failed"):
        return f"the rest is {'failed' if v.kind == 'failed' else 'invalid'}{told}"
    return f"the gain could not be shown{told}"


def _points(e: Effect, brief: bool = False) -> str:
    interval = f" [{100 * e.low:+.1f}, {100 * e.high:+.1f}]" if brief else ""
    return f"{100 * e.mean:+.1f}{interval}"
