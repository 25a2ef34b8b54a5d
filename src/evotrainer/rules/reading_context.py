"""The context in which a branch's rollouts are read, in a run and when `verify` replays a backtest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evotrainer.config.task import TaskFile
from evotrainer.factors.payable import unpayable
from evotrainer.projections.branches import BASE, Branch, Probe
from evotrainer.projections.means import greedy_per_task, mean_curve, mean_per_task
from evotrainer.projections.state import RunState
from evotrainer.records.hooks import HookCaller
from evotrainer.records.interventions import Backtest
from evotrainer.records.written import Scorer
from evotrainer.rules.recipes import evaluated

if TYPE_CHECKING:
    from evotrainer.harness import HarnessContext


def harness_context(
    task: TaskFile,
    state: RunState,
    branch: str,
    sandboxed: Any = None,
    scorer: Scorer | None = None,
    hooks: HookCaller | None = None,
) -> HarnessContext:
    """The context in which a branch's rollouts are read: its recipe, earlier readings, scores and curves,
    as far as they are known.

    `branch`: a probe as well; `base` for the base policy. `verify` calls it with the state of then.
    """
    from evotrainer.harness import HarnessContext

    b: Branch | Probe | None = state.branches.get(branch) or state.probes.get(branch)
    base = state.readings.get(BASE)
    parent = state.branches.get(b.parent) if b and b.parent else None
    earlier = (base if b else None, parent.health if parent else None)
    came = []  # trials that the branch went on from
    if b and parent:
        came = parent.complete
    elif b and state.base:
        came = [state.base]
    solved = [s.per_task for t in came for s in t.scores if s.split == "search"]
    own = b.complete if b else [state.base] if state.base else []
    return HarnessContext(
        recipe=b.recipe if b else task.recipe,
        proxy=state.proxy,
        max_tokens=evaluated(task).max_tokens,
        previous=tuple(h for h in earlier if h is not None),
        base=base,
        before=mean_per_task(solved) if solved else None,
        greedy=greedy_per_task(own, "search"),
        greedy_before=greedy_per_task(came, "search"),
        # of its own steps: other recipes made those before
        curve=tuple(mean_curve([t.curve[b.recipe.before :] for t in b.complete])) if b else (),
        unpayable=unpayable(state.environment),
        sandboxed=sandboxed,
        scorer=scorer,
        hooks=hooks,
    )


def refused_code(b: Backtest) -> bool:
    """Did its own checks end a written component or a hook, before any replay of what it does?"""
    return bool(b.label) and b.label != "backtest_contradicted"
