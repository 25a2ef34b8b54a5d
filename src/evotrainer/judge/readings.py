"""The two readings of a comparison: as sampled at the policies' deployment temperatures, and by greedy decoding.

*Sharpening* is a gain that the sampled reading shows and the greedy one does not share: scaling a policy's logits gains
so, at no change of what it finds likeliest. Named where, with one-sided 95% bounds, the sampled gain S lies above 0 and
G - S / 2 below it, G being the greedy gain: less than half of what was gained is there without sampling. One contrast,
paired by task, and not two intervals side by side: the errors of both readings of a task go into it together.

S is the verdict's, over seeds and tasks. Of its G and G - S / 2 the trainings are taken as they are and only tasks
are a sample, as in audits: they say what this gain is made of. Three seeds a side with a reading of one attempt would
seldom tell, not even two sides that differ by a factor on their logits.
"""

from __future__ import annotations

from collections.abc import Sequence

from evotrainer.judge.stats import Components, Scores, common_tasks, effect_of, over_tasks, split_score
from evotrainer.records.events import TrialFinished
from evotrainer.records.verdicts import GateResult

SHARED = 0.5
"""Share of a sampled gain below which what greedy decoding gains makes it sharpening."""
CONFIDENCE = 0.90
"""Two-sided: each bound errs in 5%. It decides no promotion, so no alpha is spent."""


def greedy_of(trials: Sequence[TrialFinished], split: str) -> Scores:
    """Seed -> task -> correct by greedy decoding, of the complete trials that were read so."""
    read = {t.seed: split_score(t, split) for t in trials if t.status == "complete"}
    return {seed: s.greedy_per_task for seed, s in read.items() if s is not None and s.greedy_per_task}


def less_share(greedy: Scores, sampled: Scores, share: float = SHARED) -> Scores:
    """greedy - share * sampled, per seed and task, of what was read both ways."""
    return {
        seed: {t: x - share * sampled[seed][t] for t, x in one.items() if t in sampled[seed]}
        for seed, one in greedy.items()
        if seed in sampled
    }


def named(gain_low: float, excess_high: float) -> bool:
    """Is it sharpening? By the lower bound of the sampled gain, and the upper one of `less_share`'s."""
    return gain_low > 0 and excess_high < 0


def second_reading(
    branch: Sequence[TrialFinished],
    control: Sequence[TrialFinished],
    sampled: tuple[Scores, Scores],
    parts: Components,
    split: str,
) -> GateResult | None:
    """What greedy decoding says of an effect; it refuses nothing. None where a side was not read so by every seed."""
    b, c = greedy_of(branch, split), greedy_of(control, split)
    if b.keys() != sampled[0].keys() or c.keys() != sampled[1].keys() or len(common_tasks(b, c)) < 2:
        return None
    gain = effect_of(parts, CONFIDENCE)
    greedy = over_tasks(b, c, CONFIDENCE)
    excess = over_tasks(less_share(b, sampled[0]), less_share(c, sampled[1]), CONFIDENCE)
    found = named(gain.low, excess.high)
    both = f"greedy decoding {greedy.points}, as sampled {gain.points} (90%)"
    if found:
        message = f"sharpening: {both}; less than half of the gain is there without sampling"
    elif gain.low <= 0:
        message = f"{both}; no gain to question"
    else:
        message = f"{both}; sharpening is not shown"
    return GateResult(
        gate="sharpening",
        passed=False if found else True if min(gain.low, greedy.low) > 0 else None,
        message=message,
        numbers={
            "sampled": gain.mean,
            "sampled_low": gain.low,
            "greedy": greedy.mean,
            "greedy_low": greedy.low,
            "greedy_high": greedy.high,
            "excess_high": excess.high,
        },
    )


def temperatures(
    branch: str,
    branch_trials: Sequence[TrialFinished],
    control: str,
    control_trials: Sequence[TrialFinished],
    split: str,
) -> str:
    """At which deployment temperatures two sides were compared; empty where none has one of its own."""
    own = [_temperatures(trials, split) for trials in (branch_trials, control_trials)]
    if not any(x is not None for side in own for x in side):
        return ""
    sides = [f"{name} {_describe(side)}" for name, side in zip((branch, control), own, strict=True)]
    return f"compared at their deployment temperatures: {', '.join(sides)}"


def _temperatures(trials: Sequence[TrialFinished], split: str) -> set[float | None]:
    read = (split_score(t, split) for t in trials if t.status == "complete")
    return {s.temperature for s in read if s is not None}


def _describe(side: set[float | None]) -> str:
    return " and ".join(sorted("the run's" if x is None else f"{x:g}" for x in side)) or "none"
