"""What each factor of a bundle adds, measured on fresh seeds before it may be promoted; what adds nothing goes."""

from __future__ import annotations

from functools import partial

from evotrainer.projections.branches import START, Branch
from evotrainer.records import keys
from evotrainer.records.events import KnockedOut
from evotrainer.records.interventions import Intervention
from evotrainer.records.names import slug
from evotrainer.rules.bundles import is_bundle, knockout_seeds, part_of, unmeasured, without
from evotrainer.rules.fresh_seeds import fresh_trainings, knock_out
from evotrainer.run import shortcut_audits, trial_specs
from evotrainer.run.branches import open_branch
from evotrainer.run.context import RunContext


def prove(ctx: RunContext, n: int, name: str) -> str:
    """The branch that may be promoted: a bundle none of whose factors adds nothing; else the part of it that is left,
    which has to be judged first; empty where every factor adds nothing."""
    b = ctx.branches[name]
    if not is_bundle(b) or not unmeasured(ctx.state, name):
        return name
    assert b.intervention is not None
    ctx.observer.step(f"trains {name} without each of its factors, on fresh seeds")
    factors = sorted(b.intervention.new)
    parent = ctx.branches[b.parent or START].recipe
    parts = {f: open_part(ctx, n, b, without(parent, b.intervention, f)) for f in factors}
    every, some = ctx.task.run.certify_seeds, knockout_seeds(ctx.task, len(factors))
    wanted = [(x, s) for s in every for x in (b, *parts.values()) if x is b or s in some]
    ctx.run_trials([trial_specs.training(ctx, x, s, "confirm") for x, s in wanted])
    found = [
        ctx.record(keys.knockout(name, slug(f)), KnockedOut, partial(measure, ctx, n, b, p, f))
        for f, p in parts.items()
    ]
    for k in found:
        told = "kept" if k.kept else "taken out"
        with_search = f", {-100 * k.together.mean:+.1f} with the search trainings" if k.together else ""
        ctx.observer.note(f"{name} {k.loss} on fresh seeds{with_search}, {told}")
    keep = [k.factor for k in found if k.kept]
    if len(keep) == len(factors):
        return name
    return open_part(ctx, n, b, part_of(b.intervention, keep)).branch if keep else ""


def open_part(ctx: RunContext, n: int, b: Branch, iv: Intervention) -> Branch:
    """The branch of a part of a bundle; the one that has the recipe already where there is one."""
    parent = ctx.branches[b.parent or START]
    recipe = parent.recipe.with_factor(iv.factor, iv.new)
    same = next((x for x in ctx.branches.values() if x.recipe.hash == recipe.hash and not x.matches), None)
    if same is not None:
        return same
    name = keys.part(b.branch, sum(x.reduces == b.branch for x in ctx.branches.values()) + 1)
    return open_branch(ctx, name, parent.branch, n, recipe, iv, reduces=b.branch)


def measure(ctx: RunContext, n: int, b: Branch, part: Branch, factor: str) -> KnockedOut:
    """The bundle against the bundle without the factor, both under the current environment knobs."""
    for x in (b, part):
        shortcut_audits.evaluations(ctx, x.branch, fresh_trainings(ctx.task, ctx.state, x.branch), ctx.env_knobs)
    return knock_out(ctx.task, ctx.state, n, b.branch, part.branch, factor)
