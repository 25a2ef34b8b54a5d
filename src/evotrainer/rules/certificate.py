"""The certificate of a run in a state of it: run and `verify` put it together by this one function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evotrainer.config.task import TaskFile
from evotrainer.errors import IntegrityError, TrainerError
from evotrainer.judge import CertEntry, certify
from evotrainer.projections.branches import BASE, START
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.events import Certified, SplitScore, TrialFinished
from evotrainer.records.split_scores import readable
from evotrainer.rules.decoding import decoding, policies
from evotrainer.rules.gains import Load, with_gains
from evotrainer.rules.scaffolds import cert_alone

if TYPE_CHECKING:
    from evotrainer.records.chain import Event


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
    texts = cert_alone(tried, task.recipe, next(iter(entries[0].scores.values())), done)
    look = 1 + sum(e.kind == "certified" for e in events)
    return with_gains(found.model_copy(update={"scaffold": texts, "look": look}), events, load)


def entry(state: RunState, done: Sequence[TrialFinished], name: str, branch: str, seeds: Sequence[int]) -> CertEntry:
    """One policy family's scores on cert, by seed: of each the last reading."""
    read: dict[int, tuple[TrialFinished, SplitScore]] = {}
    for t in done:
        cert = [readable(s, t.trial) for s in t.scores if s.split == "cert"]
        if cert and t.branch == branch and t.status == "complete" and not keys.has_own_texts(t.trial):
            read[t.seed] = t, cert[-1]
    if left := [s for s in seeds if s not in read]:
        raise IntegrityError(f"{name}: cert was not read of all of its trainings: seeds {left} are missing")
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
