"""Backtest of a gate: which recorded verdicts would be others under another rule.

Every verdict is given again from what it rested on, with its own control and its share of alpha. What a run would have
done after a changed verdict (other branches, another champion) is not simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evotrainer.errors import ConfigError
from evotrainer.judge.alpha_spending import InterimAnalysis, next_look
from evotrainer.judge.decide import Kind, judge
from evotrainer.judge.inputs import JudgeConfig, JudgeInput
from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Verdict

GATES = (
    "validity",
    "seeds",
    "errors",
    "coverage",
    "compute",
    "effect",
    "min_effect",
    "noise_floor",
    "proxy",
    "best_of_round",
)
"""Gates that a rule may drop, in the order in which the judge asks them."""
SCORE_ONLY = GATES
"""The rule that people use: whatever scores better on the mean is kept."""
DECIDING = ("effect", "min_effect", "noise_floor")


@dataclass(frozen=True, slots=True)
class Basis:
    """All that a recorded verdict rests on."""

    round: int
    stored: Verdict
    given: JudgeInput


class VerdictUnderRule(Frozen):
    """A verdict as it was and as another rule would give it."""

    branch: str
    control: str
    round: int
    was: Kind
    now: Kind
    mean: float | None = None
    """Effect in score units, where it was measured."""
    reason_was: str
    reason: str
    because: tuple[str, ...] = ()
    """Gates that answer differently or were dropped."""

    @property
    def flipped(self) -> bool:
        return self.was != self.now


def flips(bases: Sequence[Basis], config: JudgeConfig, drop: Sequence[str] = ()) -> list[VerdictUnderRule]:
    """Every verdict of a run, in the order in which they were given, under `config` without the dropped gates.

    ConfigError for a gate that does not exist or cannot be dropped.
    """
    unknown = sorted(set(drop) - set(GATES))
    if unknown:
        raise ConfigError(f"no gate {', '.join(unknown)} to drop; there are: {', '.join(GATES)}")
    lenient = config.model_copy(update={k: v for g in drop for k, v in LENIENT.get(g, {}).items()})
    fresh: list[Verdict] = []
    out: list[VerdictUnderRule] = []
    for b in bases:
        # `fresh` is shorter than `bases` while they are judged one by one: only branches judged earlier can be ahead
        rivals = [v.branch for v, x in zip(fresh, bases, strict=False) if v.kind == "promote" and x.round == b.round]
        v = _again(b, lenient, drop, fresh, rivals)
        fresh.append(v)
        out.append(_compared(b, v, drop))
    return out


LENIENT: dict[str, dict[str, float | None]] = {
    "seeds": {"min_seeds": 2},
    "errors": {"max_error_share": 1.0},
    "coverage": {"min_task_share": 1e-9},
    "compute": {"max_cost": None},
    "min_effect": {"min_effect": 0.0},
}
"""Gate -> the setting that lets everything pass."""


def _again(b: Basis, config: JudgeConfig, drop: Sequence[str], fresh: Sequence[Verdict], rivals: list[str]) -> Verdict:
    given = replace(b.given, config=config)
    # findings sit in the trials' own health reports as well; clearing only the arguments would leave the gate in place
    if "validity" in drop:
        sides = (
            [t.model_copy(update={"health": ()}) for t in side] for side in (given.branch_trials, given.control_trials)
        )
        branch_trials, control_trials = sides
        given = replace(
            given,
            branch_trials=branch_trials,
            control_trials=control_trials,
            findings=(),
            control_findings=(),
            audits={},
            shortcuts=(),
        )
    if "proxy" in drop:
        given = replace(given, proxy=None)
    # one champion a round still holds, but under the new rule it may be another branch
    ahead = given.ahead if given.ahead in rivals else next(iter(rivals), "")
    given = replace(given, ahead="" if "best_of_round" in drop else ahead)
    if b.stored.look and b.stored.alpha:
        # its recorded share, rescaled to the new alpha: verdicts stay comparable one by one, whatever was spent in
        # between
        look = InterimAnalysis(
            number=b.stored.look, alpha=min(0.499, b.stored.alpha * config.alpha / b.given.config.alpha)
        )
    else:
        # the recorded verdict never reached the effect, so it has no share of its own
        look = next_look(fresh, config.alpha)
    return _decided(judge(given, look), config, drop)


def _decided(v: Verdict, config: JudgeConfig, drop: Sequence[str]) -> Verdict:
    """The verdict where gates on the effect were dropped: what is left of them decides."""
    if v.kind == "promote" or v.effect is None or not set(drop) & {"effect", "noise_floor"}:
        return v
    answers = {g.gate: g.passed for g in v.gates}
    held = all(answers.get(g) for g in DECIDING if g not in drop)
    barred = (
        answers.get("validity") is not True or answers.get("proxy") is False or answers.get("best_of_round") is False
    )
    # "identical" can never be promoted: a branch with the control's very weights is not better, whatever is dropped
    if not held or barred or v.effect.mean <= 0 or "identical" in {g.gate for g in v.gates if g.passed is False}:
        return v
    points = f"{100 * v.effect.mean:+.1f} points"
    return v.model_copy(
        update={"kind": "promote", "reason": f"gate score {points}, better on the mean; nothing else is asked"}
    )


def _compared(b: Basis, v: Verdict, drop: Sequence[str]) -> VerdictUnderRule:
    old = {g.gate: g.passed for g in b.stored.gates}
    new = {g.gate: g.passed for g in v.gates}
    every = dict.fromkeys((*old, *new))  # in the stored verdict's order, then what is new
    changed = [g for g in every if g not in drop and old.get(g) is not new.get(g)]
    dropped = [f"{g} dropped" for g in drop if old.get(g) is not True and g in old]
    effect = v.effect or b.stored.effect
    return VerdictUnderRule(
        branch=b.stored.branch,
        control=b.stored.control,
        round=b.round,
        was=b.stored.kind,
        now=v.kind,
        mean=None if effect is None else effect.mean,
        reason_was=b.stored.reason,
        reason=v.reason,
        because=tuple(dict.fromkeys((*changed, *dropped))),
    )
