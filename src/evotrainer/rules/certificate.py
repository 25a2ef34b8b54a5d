"""The certificate of a run in a state of it: the scores on cert, how each policy decodes, which weights it is, and what
its gain goes with. Run and `verify` put it together by these functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from evotrainer.config.task import TaskFile
from evotrainer.errors import IntegrityError, TrainerError
from evotrainer.judge import CertEntry, certify
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.caveats import in_force
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import Certified, CertRow, SplitScore, TrialFinished
from evotrainer.records.sealed import SealedSplits
from evotrainer.rules import guards
from evotrainer.rules.scaffolds import cert_alone

if TYPE_CHECKING:
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.records.chain import Event
    from evotrainer.records.detectors import GainExplanation

Load = Callable[[str], "FeatureView"]
"""trial -> its search rollouts"""
_OWN = {"scaffold", "deploy_temperature"}
"""What evaluations of a recipe's policy take from the recipe: all else is the run's protocol (`rules.recipes`)."""


def certificate(task: TaskFile, state: RunState, events: Sequence[Event], load: Load) -> Certified:
    """Base policy, starting recipe and champion on cert. `events`: those of the state; `load`: trial -> its search
    rollouts. The register's counts are left out.

    TrainerError where no attempt of one of them was graded, IntegrityError where cert was not read of all of its
    trainings.
    """
    done = [e.body for e in events if e.kind == "finished"]
    champion = state.champion or BASE
    entries = [entry(state, done, "base", BASE, [0])]
    entries.append(entry(state, done, "start", START, [t.seed for t in state.branches[START].complete]))
    tried = state.branches.get(champion) if champion != START else None
    if tried:
        entries.append(entry(state, done, "champion", champion, task.run.certify_seeds))
    found = certify(entries, champion, proxy=state.proxy, noise=state.noise)
    guarded = guards.rows(task, state, tried or state.branches[START], fresh=tried is not None)
    texts = cert_alone(tried, task.recipe, next(iter(entries[0].scores.values())), done)
    look = 1 + sum(e.kind == "certified" for e in events)
    return with_gain_explanations(
        found.model_copy(update={"scaffold": texts, "look": look, "guards": guarded}), events, load
    )


def entry(state: RunState, done: Sequence[TrialFinished], name: str, branch: str, seeds: Sequence[int]) -> CertEntry:
    """One policy family's scores on cert, by seed: of each the last reading."""
    read: dict[int, tuple[TrialFinished, SplitScore]] = {}
    for t in done:
        cert = [SealedSplits.readable(s, t.trial) for s in t.scores if s.split == "cert"]
        if cert and t.branch == branch and t.status == "complete" and not keys.has_own_texts(t.trial):
            read[t.seed] = t, cert[-1]
    if left := [s for s in seeds if s not in read]:
        why = f"{name}: cert was not read of all of its trainings: seeds {left} are missing"
        raise IntegrityError(f"{why}; `evotrainer resume` reads them")
    graded = {s: read[s] for s in seeds if read[s][1].per_task}
    if not graded:
        why = "no attempt was graded"
        raise TrainerError(f"certification of {name} failed: {why}; `evotrainer resume` tries again")
    return CertEntry(
        name=name,
        branch=branch,
        scores={s: score for s, (_, score) in graded.items()},
        decoding=decoding(state, branch),
        policies=policies(state, branch, [t for t, _ in graded.values()]),
    )


def decoding(state: RunState, branch: str) -> Literal["sampled", "greedy"] | None:
    """The reading that scored higher on search, mean over the branch's trainings; sampled where both are equal. None
    where a training was not read both ways."""
    base = state.base
    trials = ([base] if base else []) if branch == BASE else state.branches[branch].complete
    last = [max((s for s in t.scores if s.split == "search"), key=lambda s: s.step, default=None) for t in trials]
    both = [(s.score, s.greedy) for s in last if s and s.score is not None and s.greedy is not None]
    if not both or len(both) < len(trials):
        return None
    return "greedy" if sum(g - s for s, g in both) > 0 else "sampled"


def policies(state: RunState, branch: str, trials: Sequence[TrialFinished]) -> frozenset[str]:
    """The policies that these evaluations of a branch read, by weights and by what else their answers depend on; empty
    where weights were not recorded."""
    if not all(t.policy_sha256 for t in trials):
        return frozenset()
    recipe = state.branches[START if branch == BASE else branch].recipe
    how = json.dumps(recipe.model_dump(mode="json", include=_OWN), sort_keys=True)
    return frozenset(f"{t.policy_sha256} {how}" for t in trials)


def with_gain_explanations(certified: Certified, events: Sequence[Event], load: Load) -> Certified:
    """The certificate with what each trained policy's gain goes with."""
    rows = [
        r if r.branch == BASE else r.model_copy(update={"gained": gain_of(r, events, load)}) for r in certified.rows
    ]
    return certified.model_copy(update={"rows": tuple(rows)})


def gain_of(row: CertRow, events: Sequence[Event], load: Load) -> GainExplanation | None:
    """The certified trainings' search rollouts against the base policy's under the same environment knobs;
    None where one has none."""
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.evolving.mining import explain_gain

    run = next(e.body for e in events if e.kind == "run")
    done = [e.body for e in events if e.kind == "finished" and e.body.status == "complete" and _searched(e.body)]
    own = [keys.training(row.branch, s) for s in row.seeds]
    now = sorted((t for t in done if t.trial in own), key=lambda t: own.index(t.trial))  # not as they finished
    knobs = in_force(run, now[0].env_knobs) if now else {}
    bases = [t for t in done if t.branch == BASE and not keys.has_own_texts(t.trial)]
    before = [t for t in bases if in_force(run, t.env_knobs) == knobs][:1]
    now_, before_ = (FeatureView.joined(load(t.trial) for t in side) for side in (now, before))
    found = explain_gain(now_, before_)
    names = {"trials": tuple(t.trial for t in now), "before": tuple(t.trial for t in before)}
    return found.model_copy(update=names) if found else None


def _searched(t: TrialFinished) -> bool:
    return any(s.split == "search" for s in t.scores)
