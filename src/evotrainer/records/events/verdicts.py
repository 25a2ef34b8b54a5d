"""What becomes of a branch: verdicts, audits, fresh seeds, promotion, invalidation."""

from __future__ import annotations

from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Effect, ShortcutAudit, Verdict


class Judged(Frozen):
    """id `<branch>/judged`, after more seeds `<branch>/judged/2`, ...: step 9, one event an interim analysis;
    the last one counts."""

    round: int
    verdict: Verdict
    evaluations: tuple[str, ...] = ()
    """Evaluations with capabilities closed whose scores stand in for those of the trials they repeat."""
    trials: tuple[str, ...] = ()
    """Trials of branch and control that were compared."""


class ToppedUp(Frozen):
    """id `<branch>/topup/<n>`: seeds added, or refused, before interim analysis `n`, since a verdict asked for them;
    before the first one since the gain that is expected of the branch asks for them."""

    round: int
    branch: str
    control: str
    wanted: int
    """Seeds per branch that are asked for."""
    seeds: tuple[int, ...] = ()
    """Seeds that the branch is trained on as well, and the control."""
    control_seeds: tuple[int, ...] = ()
    refused: str = ""
    """Why nothing was given: over budget, another branch promoted."""


class Reestimated(Frozen):
    """id `<branch>/reestimated`: a promoted branch's effect on seeds that its promotion did not choose it by."""

    branch: str
    control: str
    split: str
    effect: Effect
    """Against the control: the effect. Two-sided interval."""
    selected: Effect | None = None
    """The effect by which it was selected: the best of several, so too large on average."""
    start: Effect | None = None
    """Against the starting recipe, where that is not the control."""
    seeds: tuple[int, ...]
    """Fresh seeds."""
    control_fresh: bool
    """Was the control trained on fresh seeds, too? Otherwise its bad luck at selection is still in the effect."""
    trials: tuple[str, ...]
    control_trials: tuple[str, ...]
    start_trials: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    """Evaluations that stand in for trials' own scores, where those were made under other environment knobs."""
    noise: str = ""
    """Event with the pooled noise that the interval rests on."""


class Audited(Frozen):
    """id `<branch>/audited/<capability>`: a counterfactual audit, by the loop or by `evotrainer audit-branch`.

    `.../2`, ... where seeds were added since the one before; the last one counts.
    """

    round: int
    audit: ShortcutAudit


class Promoted(Frozen):
    """id `v<n>`: a branch becomes a version and the champion."""

    version: str
    branch: str
    previous: str | None


class Invalidated(Frozen):
    """id `<branch>/invalidated`: the branch and its descendants become invalid, also after promotion."""

    branch: str
    descendants: tuple[str, ...]
    reason: str
    champion: str
    """The last valid version's branch, champion again; `base` where there is none."""
    capability: str = ""
    """What it exploited."""
