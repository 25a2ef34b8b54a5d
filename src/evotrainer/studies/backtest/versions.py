"""Versions whose truth is known: branches of our runs, or labelled rollouts of anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evotrainer.harness import Batch, HarnessContext
from evotrainer.harness.columns.source import stored
from evotrainer.harness.evolving.detector_quality import DetectorFiring, damage_step, fire_of
from evotrainer.projections.branches import BASE
from evotrainer.projections.means import mean_curve
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.names import read_label
from evotrainer.records.output import Progress
from evotrainer.records.reading import read_batches
from evotrainer.rules.recipes import evaluated
from evotrainer.studies.backtest.sources import opened

if TYPE_CHECKING:
    from evotrainer.records.events import TrialFinished


WINDOWS = 10
"""Parts of a training whose readings tell when a detector first fires."""


@dataclass(slots=True)
class LabelledVersion:
    """One version: rollouts at its end, rollouts over its training, and its truth."""

    name: str
    whole: Batch
    context: HarnessContext
    bad: bool | None
    training: Callable[[], Iterable[tuple[int, int, Batch]]] = tuple
    """(first step, last step, rollouts) of up to WINDOWS parts of the training, oldest first. They hold
    some ten times what `whole` does: each is read when it is asked for."""
    damage: int | None = None
    seen: bool = False
    labels: np.ndarray | None = None
    """Which rollouts of `whole` are bad, boolean (N,)."""


def cases_of_run(folder: Path, detector: str, progress: Progress | None = None) -> list[LabelledVersion]:
    """A case for every branch of a run with a complete training. `progress`: what, branches read, of how many."""
    from evotrainer import api

    run = api.open_run(folder)
    events = run.events()
    tree = RunState.of(events)
    first = {e.id: e.body.health for e in events if e.kind == "diagnosed"}
    looked = branches_read(events, detector)
    out = []
    for i, (name, b) in enumerate(tree.branches.items()):
        if progress:
            progress(f"reading {folder.name}/{name}", i, len(tree.branches))
        trials = [t.trial for t in b.complete]
        if not trials:
            continue
        stores = [folder / "rollouts" / t for t in trials]
        whole = Batch.over(stored(read_batches(stores, split="search")))
        context = HarnessContext(
            recipe=b.recipe,
            proxy=tree.proxy,
            max_tokens=evaluated(run.task).max_tokens,
            base=first.get(keys.reading(BASE)),
            previous=tuple(h for h in [first.get(keys.reading(b.parent or ""))] if h),
            curve=tuple(mean_curve([t.curve for t in b.complete]))[b.recipe.before :],
        )
        out.append(
            LabelledVersion(
                f"{folder.name}/{name}",
                whole,
                context,
                truth_of(tree, name),
                partial(_training, stores),
                damage=_damage(b.complete, b.recipe.whole_steps),
                seen=name in looked,
            )
        )
    return out


def recorded(folder: Path, detector: str) -> list[tuple[str, bool | None, DetectorFiring]]:
    """(version, its truth, what the run itself read with a built-in detector) of every branch, from the ledger alone:
    no rollout is opened. A branch that was never read has no firing."""
    from evotrainer import api

    events = api.open_run(folder).events()
    tree = RunState.of(events)
    read = {e.id: e.body.health for e in events if e.kind == "diagnosed"}
    out = []
    for name, b in tree.branches.items():
        if b.complete:
            health = read.get(keys.reading(name))
            fire = fire_of(health.findings, detector) if health else DetectorFiring(False)
            out.append((f"{folder.name}/{name}", truth_of(tree, name), fire))
    return out


def truth_of(tree: RunState, name: str) -> bool | None:
    """Bad: invalid for a reason of its own. Good: judged or promoted, and still valid.
    Else unknown, also descendants of a bad one."""
    b = tree.branches[name]
    if b.invalid is not None:
        return None if b.invalid.startswith("descends from ") else True
    if b.verdict is not None and b.verdict.kind == "invalid":
        return True
    return False if b.version or (b.verdict and b.verdict.kind != "failed") else None


def branches_read(events: Sequence[Any], detector: str) -> set[str]:
    """Branches that had been read when the run's harness adopted the detector,
    without those held out for its admission."""
    versions = [e for e in events if e.kind == "harness"]
    adopted = next((e for e in versions if any(d.name == detector for d in e.body.added)), None)
    if adopted is None:
        return set()
    finished = [e for e in events if e.kind == "finished"]
    done = {e.body.branch for e in finished if e.seq < adopted.seq}
    branch_of = {e.body.trial: e.body.branch for e in finished}
    held: set[str] = set()
    for a in adopted.body.admissions:
        if a.detector.name == detector:
            held |= {branch_of.get(read_label(t).trial, "") for t in (*a.bad, *a.clean)}
    return done - held


def _damage(trials: Sequence[TrialFinished], steps: int) -> int:
    """First step at which a trial's score falls and stays down; else the end of training, where the verdict sees it."""
    fallen: list[int] = []
    for t in trials:
        step = damage_step([(int(p["step"]), p["score"]) for p in t.curve if "score" in p and "step" in p])
        if step is not None:
            fallen.append(step)
    return min(fallen, default=steps)


def _training(stores: Sequence[Path]) -> Iterator[tuple[int, int, Batch]]:
    """(first step, last step, training rollouts) of a branch's trials, in up to WINDOWS parts, oldest first."""
    source = stored(read_batches(stores, split="train"))
    step = np.array(source.column("step", range(source.n)), dtype=np.int64)
    steps = np.unique(step)
    for few in np.array_split(steps, min(WINDOWS, len(steps))) if len(steps) else []:
        rows = np.flatnonzero((step >= few[0]) & (step <= few[-1]))
        yield int(few[0]), int(few[-1]), Batch.over(source.take(rows.tolist()))


def cases_from_other_tools(
    paths: Sequence[Path], format: str | None, cache: Path | None, workers: int | None, progress: Progress | None = None
) -> list[LabelledVersion]:
    """A case for every run, branch and split of other rollouts."""
    from evotrainer.studies.audit.curve import learning_curve, paid_weights, proxy_pair
    from evotrainer.studies.audit.reading import batch_of, subjects_of

    out = []
    for source, whole, traits in opened(paths, format, cache, workers, progress):
        for name, rows in subjects_of(traits):
            batch = batch_of(whole, traits, rows)
            context = HarnessContext(proxy=proxy_pair(batch), paid=paid_weights(batch), curve=learning_curve(batch))
            out.append(
                LabelledVersion(f"{Path(source.label).name} {name}".strip().replace("/", "_"), batch, context, None)
            )
    names = [c.name for c in out]
    for i, c in enumerate(out):
        if names.count(c.name) > 1:
            c.name = f"{c.name} #{i + 1}"
    return out
