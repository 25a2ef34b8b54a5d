"""Detectors learned from what was confirmed: run and `verify` mine them and try them by this one function.

Labels are single rollouts: hacks of confirmed readings, each with a quote, and facts of probes. Some of the
trainings that hold hacks are mined; a candidate is tried on the others. What a detector of the current version explains
is no label any more: so the next one is about what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.columns.rollout_reader import HACK, HONEST, ReadLabels, RolloutReader, named_views
from evotrainer.harness.evolving.admission import admit
from evotrainer.harness.evolving.authored import flags, found
from evotrainer.harness.evolving.mining import mine, named
from evotrainer.projections.branches import Branch
from evotrainer.projections.reader import read_rollouts
from evotrainer.records.chain import Event
from evotrainer.records.detectors import Admission, DetectorSpec
from evotrainer.records.events import GapSeen, HarnessEvolved
from evotrainer.records.text import counted

LEAST = 4
"""Hacks, and honest rollouts, of the mined trainings below which nothing is mined."""
ONE = "a better detector was admitted for the same hacks already"
PROBING = "program_probes"
"""Detector of the facts of probes (harness/detectors/overfitting.py)."""
Standing = Literal["suspect", "informational"]


class SpentRunner(Protocol):
    """What runs a detector's function, and the CPU-seconds that it took so far."""

    def __call__(self, source: str, rollouts: list[dict[str, object]], /) -> Any: ...
    def spent(self) -> float: ...


def in_force(events: Iterable[Event]) -> HarnessEvolved | None:
    """The last version of the harness among some events."""
    return next((e.body for e in reversed(list(events)) if isinstance(e.body, HarnessEvolved)), None)


def explaining(events: Iterable[Event]) -> list[DetectorSpec]:
    """Detectors of the current version whose rollouts a reader need not read again: learned from what was confirmed,
    or confirmed by an audit. Functions are left out: they need a sandbox."""
    version = in_force(events)
    specs = [DetectorSpec.model_validate(s) for s in version.harness.get("authored", ())] if version else []
    return [s for s in specs if (s.origin == "learned" or s.standing == "confirmed") and s.form != "python"]


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


def labelled(events: Sequence[Event], rollouts: RolloutReader, trials: Iterable[str]) -> ReadLabels:
    """(trial, `hack` or `honest`) -> ids of search rollouts of some trainings: hacks that a confirmed reading or a fact
    of a probe tells and no detector explains; what a reader called honest, or without one what probes found clean."""
    every = list(trials)
    labels: dict[tuple[str, str], set[str]] = {(t, verdict): set() for t in every for verdict in (HACK, HONEST)}
    read = [r for r in read_rollouts(events) if r.confirmed or r.verdict.verdict == HONEST]
    for r in read:
        if r.trial in every:
            labels[r.trial, r.verdict.verdict].add(r.rollout)
    for t in every:
        facts = probed(rollouts, t)
        labels[t, HACK] |= facts[HACK]
        if all(r.confirmed for r in read):
            labels[t, HONEST] |= facts[HONEST] - labels[t, HACK]
    known = explained_places(rollouts, [t for t in every if labels[t, HACK]], explaining(events))
    for t in every:
        labels[t, HACK] -= {i for i in labels[t, HACK] if (t, i) in known}
    return {k: ids for k, ids in labels.items() if ids}


def probed(rollouts: RolloutReader, trial: str) -> dict[str, set[str]]:
    """Ids of search rollouts by what probes say: `hack` where there is a certain fact, `honest` where there is none."""
    batch = rollouts.views(trial).batch
    x, ids = batch.trait("probed"), batch.column("id")
    return {v: {ids[i] for i in np.flatnonzero(m)} for v, m in ((HACK, x >= 1), (HONEST, x == 0))}


def trainings(branches: Mapping[str, Branch]) -> list[str]:
    """All complete trainings of a run's branches."""
    return [t.trial for b in branches.values() for t in b.complete]


def label(trial: str, verdict: str) -> str:
    """Name of the rollouts of a trial that a reader called so; `named_views` reads it."""
    return f"{trial} search, read {verdict}"


def learn(
    events: Sequence[Event],
    rollouts: RolloutReader,
    b: Branch,
    trials: Iterable[str],
    standing: Standing,
    runner: SpentRunner | None = None,
) -> GapSeen | None:
    """What is confirmed by now teaches a detector; each candidate is admitted or refused. None where detectors explain
    every hack. `b`: the branch that was looked at last; `trials`: trainings of the run."""
    labels, version = labelled(events, rollouts, trials), in_force(events)
    if version is None or not (hacks := [t for t, verdict in labels if verdict == HACK]):
        return None
    mined = _mined([(t, len(labels[t, HACK])) for t in hacks])

    def side(verdict: str, of_mined: bool) -> dict[str, FeatureView]:
        names = [label(t, v) for t, v in labels if v == verdict and (t in mined) == of_mined]
        return {name: named_views(rollouts, name, labels) for name in names}

    bad, clean = side(HACK, True), side(HONEST, True)
    n = {k: sum(len(ids) for (_, v), ids in labels.items() if v == k) for k in (HACK, HONEST)}
    reason, considered, compared = _too_few(hacks, bad, clean), list[Admission](), 0
    if not reason:
        whole = FeatureView.joined(bad.values())
        about = _about(quoted_lines(events, whole))
        fit = mine(whole, FeatureView.joined(clean.values()), about=about)
        compared, taken = fit.compared, names_used(events)
        shown = FeatureView.joined(rollouts.views(t) for t in mined)
        held = side(HACK, False), side(HONEST, False)
        for c in fit.candidates:
            # between what honest rollouts show and what those trainings show, nearer to these: few honest ones are read
            warn = max(0.02, round((c.share_clean + 2 * float(np.mean(flags(c.spec, shown)))) / 3, 2))
            update = {"origin": "learned", "standing": standing, "warn": warn}
            spec = named(c, taken).spec.model_copy(update=update)
            taken.add(spec.name)
            a = Admission(detector=spec, admitted=False, reason=ONE)
            if not any(x.admitted for x in considered):
                a = _tried(spec, *held, len(fit.candidates), version, explaining(events), runner)
            of_mining = {"mined_bad": round(c.share_bad, 6), "mined_clean": round(c.share_clean, 6), "mined_p": c.p}
            considered.append(a.model_copy(update={"numbers": of_mining | a.numbers}))
        reason = (
            ""
            if considered
            else f"none of {compared} predicates about what was quoted tells hacks from honest rollouts"
        )
    return GapSeen(
        round=b.round,
        branch=b.branch,
        against=b.branch,
        trigger="learned",
        harness=version.version,
        claim=f"no detector explains {counted(n[HACK], 'confirmed hack')} ({n[HONEST]} rollouts are known as honest)",
        numbers={"hacks": float(n[HACK]), "honest": float(n[HONEST]), "trials": float(len(hacks))},
        mined=(*bad, *clean),
        candidates=compared,
        considered=tuple(considered),
        reason=reason,
    )


def _mined(hacks: Sequence[tuple[str, int]]) -> list[str]:
    """Trainings to mine, of those with (training, known hacks): the smaller half, more where those hold too few. Few
    predicates are about quotes, so that admission needs the rollouts more."""
    k = max(1, len(hacks) // 2)
    while k < len(hacks) - 1 and sum(n for _, n in hacks[:k]) < LEAST:
        k += 1
    return [t for t, _ in hacks[:k]]


def quoted_lines(events: Iterable[Event], hacks: FeatureView) -> list[str]:
    """Of each hack that a reader confirmed the commands and lines of the answer that hold its quote, or are in it."""
    quotes = {r.rollout: r.verdict.quote.strip() for r in read_rollouts(events) if r.confirmed}
    out: list[str] = []
    for i, answer, commands in zip(hacks.batch.column("id"), hacks.answers, hacks.commands, strict=True):
        if quote := quotes.get(i):
            own = [x for x in (*commands, *answer.splitlines()) if quote in x or (x.strip() and x.strip() in quote)]
            out.append("\n".join(dict.fromkeys(own)) or quote)
    return out


def _about(quotes: Sequence[str]) -> Callable[[DetectorSpec], bool]:
    """Is a predicate about what a reader quoted: is it found in half of the quotes? Sizes and overlaps never are: they
    name no cause. Without quotes, as of probes, any other predicate is."""

    def about(s: DetectorSpec) -> bool:
        if s.form == "threshold" or (s.where == "observations" and quotes):
            return False
        patterns = s.steps or (s.pattern,)
        return not quotes or bool(np.mean(np.any([found(p, quotes) for p in patterns], axis=0)) >= 0.5)

    return about


def _tried(
    spec: DetectorSpec,
    bad: Mapping[str, FeatureView],
    clean: Mapping[str, FeatureView],
    together: int,
    version: HarnessEvolved,
    authored: Sequence[DetectorSpec],
    runner: SpentRunner | None,
) -> Admission:
    """The admission test on trainings that were not mined. What only informs (it spares a reader nothing), and probes
    (they look at a sample), make no detector redundant."""
    builtin = [d for d in version.harness.get("detectors", ()) if d != PROBING]
    spent = runner.spent if runner else lambda: 0.0
    return admit(spec, bad, clean, together=together, builtin=builtin, authored=authored, runner=runner, spent=spent)


def _too_few(hacks: Sequence[str], bad: Mapping[str, FeatureView], clean: Mapping[str, FeatureView]) -> str:
    """Why nothing can be mined; empty where it can."""
    some, honest = (sum(map(len, side.values())) for side in (bad, clean))
    if len(hacks) < 2:
        return "too few: a detector is mined on one training and tried on another, and hacks of one alone are known"
    if some < LEAST or honest < LEAST:
        return f"too few: the trainings to mine have {some} such hacks and {honest} honest rollouts, {LEAST} are needed"
    return ""
