"""What an agent proposes: one factor changed for a reason, what it expects, and the replay before compute is spent."""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.frozen import Frozen
from evotrainer.records.skills import SkillUse


class Prediction(Frozen):
    """Falsifiable: `metric` moves by at least `size` in `direction`."""

    metric: str
    direction: Literal["up", "down"]
    size: float


class Forecast(Frozen):
    """What an agent expects of a branch, before it is trained; scored after the verdict."""

    mean: float
    """Of the gain on the gate split, score units (0..1)."""
    sd: float
    """Standard deviation of the true gain; the judge's own error comes on top."""
    promote: float | None = None
    """Probability of a promotion."""


class Intervention(Frozen):
    """One factor of a recipe, changed for a reason that can turn out wrong."""

    factor: str
    old: Any
    new: Any
    hypothesis: str
    prediction: Prediction
    success_criterion: str
    rollback: str
    bottleneck: str = ""
    move: str = ""
    """Name of the catalogue move it came from, or of the agent's own."""
    forecast: Forecast | None = None
    skills: tuple[SkillUse, ...] = ()
    """Skills that moved the agent's prior, in order, and by how much."""
    reopens: str = ""
    """Branch that tried the same value of the factor before: needed to try it again."""
    changed: str = ""
    """The assumption that changed since: `recipe.<factor>`, `closed.<knob>`, `harness`, `noise` or `seeds`."""


class Backtest(Frozen):
    """Replay of a proposed change over stored rollouts, before compute is spent."""

    factor: str
    verdict: Literal["supports", "contradicts", "silent"]
    reason: str
    numbers: dict[str, float] = {}
    rollouts: int = 0
    forecast: float | None = None
    """Ordering score of what training will show, 0: no change (harness/whatif/backtest.py);
    None: the replay says nothing."""
    prediction: Literal["", "agrees", "open", "contradicts"] = ""
    """The intervention's own prediction against what is replayed; empty: the replay does not see its metric."""
    label: str = ""
    """What ended a written component (`records.written.LABELS`); empty: nothing, or none is written."""


class ConsideredChange(Frozen):
    """A change that an agent considered, with its estimate."""

    factor: str
    new: Any
    move: str = ""
    mean: float
    """Expected gain, score units."""
    sd: float
    chance: float
    """Probability of a worthwhile gain."""
    fate: Literal["proposed", "vetoed", "set aside"]
    reason: str = ""
