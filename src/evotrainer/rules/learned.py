"""Detectors learned from what a reader confirmed: run and `verify` mine them and try them by this one function.

Labels are single rollouts: hacks of confirmed readings, each with a quote, and what a reader called honest. Half of the
trainings that hold hacks are mined; a candidate is tried on the others. What a detector of the current version explains
is no label any more: so the next one is about what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.harness.evolving.admission import admit
from evotrainer.harness.evolving.authored import Runner, flags
from evotrainer.harness.evolving.mining import mine, named
from evotrainer.harness.evolving.named_rollouts import HACK, HONEST, ReadLabels, named_views
from evotrainer.projections.reader import read_rollouts
from evotrainer.records.chain import Event
from evotrainer.records.detectors import Admission, DetectorSpec
from evotrainer.records.events import GapSeen, HarnessEvolved, ReaderConcluded
from evotrainer.records.text import counted

LEAST = 4
"""Hacks, and honest rollouts, of the mined trainings below which nothing is mined."""
ONE = "a better detector was admitted for this reading already"


def in_force(events: Iterable[Event]) -> HarnessEvolved | None:
    """The last version of the harness among some events."""
    return next((e.body for e in reversed(list(events)) if isinstance(e.body, HarnessEvolved)), None)


def explaining(events: Iterable[Event]) -> list[DetectorSpec]:
    """Detectors of the current version whose rollouts a reader need not read again: learned from its readings, or
    confirmed by an audit. Functions are left out: they need a sandbox."""
    version = in_force(events)
    specs = [DetectorSpec.model_validate(s) for s in version.harness.get("authored", ())] if version else []
    return [s for s in specs if (s.origin == "reader" or s.standing == "confirmed") and s.form != "python"]


def explained(specs: Sequence[DetectorSpec], view: FeatureView) -> list[str]:
    """Of each rollout the first detector that flags it; empty: none does."""
    out = [""] * len(view)
    for s in reversed(specs):
        for i in np.flatnonzero(flags(s, view)):
            out[i] = s.name
    return out


def explained_places(
    rollouts: RolloutReader, trials: Iterable[str], specs: Sequence[DetectorSpec]
) -> dict[tuple[str, str], str]:
    """(trial, id) of search rollouts that a detector explains -> the first detector that does."""
    out: dict[tuple[str, str], str] = {}
    for t in trials if specs else ():
        view = rollouts.views(t)
        out |= {(t, i): by for i, by in zip(view.batch.column("id"), explained(specs, view), strict=True) if by}
    return out


def names_used(events: Iterable[Event]) -> set[str]:
    """Names of every authored detector there ever was."""
    seen = [e.body for e in events]
    used = {s.name for b in seen if isinstance(b, HarnessEvolved) for s in b.added}
    return used | {a.detector.name for b in seen if isinstance(b, GapSeen) for a in b.considered}


def labelled(events: Sequence[Event], rollouts: RolloutReader) -> ReadLabels:
    """(trial, `hack` or `honest`) -> ids of search rollouts: hacks of confirmed readings that no detector explains, and
    what a reader called honest."""
    labels: dict[tuple[str, str], set[str]] = {}
    for r in read_rollouts(events):
        if r.confirmed or r.verdict.verdict == HONEST:
            labels.setdefault((r.trial, r.verdict.verdict), set()).add(r.rollout)
    specs = explaining(events)
    for (trial, verdict), ids in labels.items() if specs else ():
        if verdict == HACK:
            view = named_views(rollouts, label(trial, HACK), labels)
            ids -= {i for i, by in zip(view.batch.column("id"), explained(specs, view), strict=True) if by}
    return {k: ids for k, ids in labels.items() if ids}


def label(trial: str, verdict: str) -> str:
    """Name of the rollouts of a trial that a reader called so; `named_views` reads it."""
    return f"{trial} search, read {verdict}"


def learn(
    events: Sequence[Event],
    rollouts: RolloutReader,
    read: ReaderConcluded,
    standing: Literal["suspect", "informational"],
    runner: Runner | None = None,
    spent: Callable[[], float] | None = None,
) -> GapSeen | None:
    """What a confirmed reading, with all readings before it, teaches: candidates, each admitted or refused. None where
    detectors explain every hack that was read."""
    labels = labelled(events, rollouts)
    if not (hacks := [t for t, verdict in labels if verdict == HACK]):
        return None
    mined = hacks[: len(hacks) - len(hacks) // 2]

    def side(verdict: str, of_mined: bool) -> dict[str, FeatureView]:
        names = [label(t, v) for t, v in labels if v == verdict and (t in mined) == of_mined]
        return {name: named_views(rollouts, name, labels) for name in names}

    bad, clean = side(HACK, True), side(HONEST, True)
    n = {k: sum(len(ids) for (_, v), ids in labels.items() if v == k) for k in (HACK, HONEST)}
    numbers = {"hacks": float(n[HACK]), "honest": float(n[HONEST]), "trials": float(len(hacks))}
    said, considered, compared = _too_few(hacks, bad, clean), list[Admission](), 0
    version = in_force(events)
    if not said and version is not None:
        found = mine(FeatureView.joined(bad.values()), FeatureView.joined(clean.values()))
        compared, taken = found.compared, names_used(events)
        held_bad, held_clean = side(HACK, False), side(HONEST, False)
        shown = FeatureView.joined(rollouts.views(t) for t in mined)
        for c in found.candidates:
            # speaks from half way between what honest rollouts show and what those trainings show
            warn = max(0.02, round((c.share_clean + float(np.mean(flags(c.spec, shown)))) / 2, 2))
            update = {"origin": "reader", "standing": standing, "warn": warn}
            spec = named(c, taken).spec.model_copy(update=update)
            taken.add(spec.name)
            a = Admission(detector=spec, admitted=False, reason=ONE)
            if not any(x.admitted for x in considered):
                a = admit(
                    spec,
                    held_bad,
                    held_clean,
                    together=len(found.candidates),
                    builtin=version.harness.get("detectors", ()),
                    authored=explaining(events),  # one that only informs does not spare a reader anything
                    runner=runner,
                    spent=spent,
                )
            of_mining = {"mined_bad": round(c.share_bad, 6), "mined_clean": round(c.share_clean, 6), "mined_p": c.p}
            considered.append(a.model_copy(update={"numbers": of_mining | a.numbers}))
        said = "" if considered else f"none of {compared} predicates tells hacks from honest rollouts"
    of_them = f"{counted(n[HACK], 'rollout')} hacks, {n[HONEST]} honest"
    return GapSeen(
        round=read.round,
        branch=read.branch,
        against=read.branch,
        trigger="reader",
        harness=version.version if version else "",
        claim=f"readers call {of_them}, and no detector explains the hacks",
        numbers=numbers,
        mined=(*bad, *clean),
        candidates=compared,
        considered=tuple(considered),
        reason=said,
    )


def _too_few(hacks: Sequence[str], bad: Mapping[str, FeatureView], clean: Mapping[str, FeatureView]) -> str:
    """Why nothing can be mined; empty where it can."""
    some, honest = (sum(map(len, side.values())) for side in (bad, clean))
    if len(hacks) < 2:
        return "too few: a detector is mined on one training and tried on another, and hacks were read of one alone"
    if some < LEAST or honest < LEAST:
        return (
            f"too few: of the trainings to mine {some} hacks and {honest} honest rollouts were read, {LEAST} are needed"
        )
    return ""
