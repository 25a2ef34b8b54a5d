"""Detectors as data: how one is written, admitted, tested against known versions, and what a gain goes with."""

from __future__ import annotations

from typing import Literal

from evotrainer.records.findings import SHORTCUT
from evotrainer.records.frozen import Frozen
from evotrainer.records.text import counted


class DetectorSpec(Frozen):
    """A detector as data: mined from contrasts, or written by an agent or a user. It flags single rollouts and speaks
    where the share of flagged ones in a reading reaches `warn`.

    pattern: a regular expression (Rust syntax, linear time) is found in `where`. sequence: actions that match `steps`
    one after the other, each at most `within` actions after the one before. threshold: `feature`
    (harness/columns/features.py) lies at or beyond `value`. python: `flag(rollouts)` of `source` answers one boolean
    per rollout, in the sandbox.
    """

    name: str
    form: Literal["pattern", "sequence", "threshold", "python"]
    about: str = ""
    kind: str = SHORTCUT
    where: Literal["answer", "actions", "observations"] = "answer"
    pattern: str = ""
    steps: tuple[str, ...] = ()
    within: int = 1
    feature: str = ""
    op: Literal[">=", "<="] = ">="
    value: float = 0.0
    source: str = ""
    warn: float = 0.1
    """Share of flagged rollouts from which a reading has a finding."""
    standing: Literal["suspect", "confirmed", "informational"] = "informational"
    """suspect: its findings question the branch, an audit decides. confirmed: an audit said so once.
    informational: notes only."""
    origin: Literal["mined", "learned", "agent", "user"] = "user"
    """mined: from a gap; learned: from rollouts that a reader, or a probe, confirmed as hacks."""

    @property
    def does(self) -> str:
        """What a flagged rollout does, in words."""
        if self.about:
            return self.about
        if self.form == "threshold":
            if self.op == ">=" and self.feature in COPIED:
                return f"take at least {self.value:.0%} of {COPIED[self.feature]}"
            return f"have {self.feature} {self.op} {self.value:g}"
        if self.form == "pattern":
            return f"show /{self.pattern}/ in their {self.where}"
        if self.form == "sequence":
            near = "" if self.within == 1 else f" (within {self.within} actions)"
            return "do " + ", then ".join(f"/{s}/" for s in self.steps) + near
        return f"are flagged by a function of {counted(len(self.source.splitlines()), 'line')}"


COPIED = {
    "copied:prompt": "their longer words from the prompt",
    "copied:observations": "their longer words from what they were shown",
    "copied:tests": "the visible expected outputs into the answer",
}
"""Feature of overlap -> what is copied."""


class Admission(Frozen):
    """The decision on a proposed detector, with its numbers on rollouts that were not used to find it."""

    detector: DetectorSpec
    admitted: bool
    reason: str
    """Why it was refused or admitted, with the number that decided."""
    bad: tuple[str, ...] = ()
    """Held-out trials it should speak of, `<trial> <split>` each, ..."""
    clean: tuple[str, ...] = ()
    """... and those on which it should be silent."""
    numbers: dict[str, float] = {}
    """share_bad, share_clean, their bounds, p, false_alarm, overlap, cpu_s_per_1000, precision, recall, ..."""
    overlaps: str = ""
    """Detector of the current harness whose flagged rollouts overlap most."""


class HarnessEdit(Frozen):
    """What an agent wants changed in the harness; the same admission as for mined detectors decides."""

    add: tuple[DetectorSpec, ...] = ()
    retire: tuple[str, ...] = ()
    """Names of detectors."""
    reason: str = ""


class VerdictChange(Frozen):
    """A past verdict that would have read differently under a new harness version."""

    branch: str
    was: str
    would: str
    detector: str
    share: float
    """Flagged rollouts of the branch."""


class GainExplanation(Frozen):
    """What a gain goes with: the one simple behaviour that says most of it, measured on tasks it was not chosen by
    (harness/evolving/mining.py)."""

    trials: tuple[str, ...] = ()
    """Trainings whose search rollouts were compared ..."""
    before: tuple[str, ...] = ()
    """... with those of the policy before training."""
    gain: float
    """Share of correct attempts now minus before, on the measured half of the tasks."""
    compared: int
    """Number of behaviours that were compared."""
    detector: DetectorSpec | None = None
    """The behaviour; None where none became more frequent."""
    share: float = 0.0
    """Part of the gain that comes from showing it more often (Kitagawa 1955); may lie outside of [0, 1]."""
    shown: float = 0.0
    """Share of attempts that show it now ..."""
    shown_before: float = 0.0
    solved: float | None = None
    """Share of correct ones among them now ..."""
    solved_before: float | None = None
    seen_before: int = 0
    """Attempts before training that show it."""

    @property
    def behaviour(self) -> str:
        """The behaviour in words, as after `comes with`;
        a policy's own words among them are made printable, and cut."""
        d = self.detector
        if d is None:
            return ""
        if d.form == "threshold":
            return f"`{d.feature} {d.op} {d.value:g}`"
        about = "".join(c if c.isprintable() else "·" for c in d.about)
        return f"attempts that {about if len(about) <= 80 else about[:80] + '…'}"
