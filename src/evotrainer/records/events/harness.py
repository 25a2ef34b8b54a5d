"""The harness's own history: gaps that were seen, versions that answered them."""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.detectors import Admission, DetectorSpec, VerdictChange
from evotrainer.records.findings import Quote
from evotrainer.records.frozen import Frozen


class GapSeen(Frozen):
    """id `gap/<branch>`: a diagnostic gap. Something moved, and no finding of the current harness says why.

    id `gap/<branch>/unexplained`: nothing need have moved; many attempts are paid and wrong, and no finding says why.

    id `gap/<branch>/read/<n>`: a reader (reading n) or probes (0) confirmed hacks that no detector explains."""

    round: int
    branch: str
    against: str
    """Branch whose rollouts it was compared with: the parent, or `base`; of a unexplained gap itself: what is right."""
    trigger: Literal["score_move", "behaviour_shift", "contradiction", "unexplained_gap", "agent", "learned"]
    harness: str
    """Harness version at the time."""
    claim: str
    numbers: dict[str, float] = {}
    mined: tuple[str, ...] = ()
    """Trials in whose search rollouts candidates were sought; held-out ones are with each candidate."""
    candidates: int = 0
    """Predicates that were compared; the level of the mining's test is divided by it."""
    considered: tuple[Admission, ...] = ()
    """The best of them, each admitted or refused with a reason."""
    reason: str = ""
    """Why nothing could be mined, where that is so."""
    kept: dict[str, str] = {}
    """Detectors that an agent wanted retired and that stay, with the reason."""

    @property
    def summary(self) -> str:
        """The claim with the trainings and the version that it is of, and detectors made for it: they tell what goes
        with it, no more."""
        made = ", ".join(a.detector.name for a in self.considered if a.admitted)
        n = int(self.numbers.get("trials", 0))
        of = "" if n < 1 else "one training alone, " if n == 1 else f"{n} trainings together, "
        since = f"; since then {made} tells what goes with it" if made else ""
        return f"{self.claim} ({of}harness {self.harness}{since})"


class HarnessEvolved(Frozen):
    """id `harness/<at>`: a version of the harness; h0 where the run opened, later ones with all that led to them."""

    version: str
    parent: str = ""
    hash: str
    round: int = 0
    harness: dict[str, Any]
    """The version whole: metrics, detectors, thresholds, authored detectors."""
    trigger: str
    """opened, score_move, behaviour_shift, contradiction, unexplained_gap, agent, learned, audit or retirement."""
    reason: str
    added: tuple[DetectorSpec, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: dict[str, str] = {}
    """Detector -> its new status: suspect, confirmed or informational."""
    thresholds: dict[str, float] = {}
    gap: str = ""
    """Id of the gap's event."""
    branches: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    admissions: tuple[Admission, ...] = ()
    """Every proposed detector with its backtest, the refused ones as well."""
    flips: tuple[VerdictChange, ...] = ()
    """Past verdicts that would read differently under this version."""

    @property
    def size(self) -> str:
        """`24 built-in detectors, 2 of its own`."""
        n, own = (len(self.harness.get(kind, ())) for kind in ("detectors", "authored"))
        first = f"{n} built-in detector{'' if n == 1 else 's'}" if n else "score layer only, no built-in detector"
        return first + (f", {own} of its own" if own else "")
