"""What a careful reader would ask for and a run cannot answer, as facts of the run and of its branches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evotrainer.projections.branches import BASE
from evotrainer.projections.facts import Fact
from evotrainer.projections.state import RunState
from evotrainer.records.text import counted

MIN_SEEDS = 3
"""Seeds of a certified policy below which its certificate says so."""


def of_run(state: RunState) -> Iterator[Fact]:
    """Of the run: its certificate, its proxy, its sandbox; the noise floor says by itself whether it was measured."""
    if state.certified is None and state.trials:
        yield Fact(kind="uncertified", text="nothing is certified: every score is from tasks that were used to choose")
    if state.opened and state.proxy is None:
        yield Fact(kind="no_proxy", text="the environment names no proxy and true reward component to compare")
    if state.opened:
        below = state.opened.sandbox_tier in ("B", "C", "D", "E")
        text = re.sub("^(warning: )?sandbox:? ", r"\1", state.opened.isolation)  # its label says what it is about
        yield Fact(kind="open_sandbox" if below else "sandbox", text=text)


def of_branch(branch: str, state: RunState) -> Iterator[Fact]:
    """Of a branch, or of the base policy: seeds of its certificate, trials without a result, rollouts without a
    grade."""
    for kind, text in (("few_seeds", _seeds(branch, state)), *_trials(branch, state)):
        if text:
            yield Fact(kind=kind, about=branch, text=text)


def _seeds(branch: str, state: RunState) -> str:
    """That a certified policy was trained on few seeds; the base policy has none."""
    rows = state.certified.rows if state.certified and branch != BASE else ()
    seeds = next((len(r.seeds) for r in rows if r.branch == branch), MIN_SEEDS)
    return f"certified on {counted(seeds, 'seed')}, fewer than {MIN_SEEDS}" if seeds < MIN_SEEDS else ""


def _trials(branch: str, state: RunState) -> Iterator[tuple[str, str]]:
    trials = [t for t in state.trials.values() if t.branch == branch]
    done = [t.finished for t in trials if t.finished and t.status == "complete"]
    lost, faults = len(trials) - len(done), sum(s.errors for t in done for s in t.scores)
    has = f"{lost} of {counted(len(trials), 'trial')} {'has' if lost == 1 else 'have'} no result"
    yield "lost", has if lost and branch != BASE else ""
    yield "faults", f"{counted(faults, 'rollout')} lost to infrastructure faults, in no mean" if faults else ""
