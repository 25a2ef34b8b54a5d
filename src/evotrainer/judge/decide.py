"""The decision on a branch: a pure function of ledger bodies, so that `evotrainer why` can recompute it.

The judge sees trials, findings and earlier noise; never who proposed the change, nor the recipes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from evotrainer.judge import checks, compute, guards, readings, scaffold, settings, stats
from evotrainer.judge.alpha_spending import InterimAnalysis, share
from evotrainer.judge.inputs import JudgeConfig, JudgeInput, Kind
from evotrainer.records.text import decimal_places, noise_floor
from evotrainer.records.verdicts import Effect, GateResult, Verdict

FUTILE = 0.95
"""One-sided confidence at which a worthwhile effect counts as excluded, so that no more seeds are asked for."""


def judge(given: JudgeInput, look: InterimAnalysis) -> Verdict:
    """Verdict on a branch against its control at an interim analysis.

    A verdict that did not test the effect (invalid, failed, too few seeds, identical) spends nothing: look 0.
    """
    branch, control, config = given.branch, given.control, given.config
    branch_trials, control_trials = given.branch_trials, given.control_trials
    gates: list[GateResult] = []
    settle = partial(_settled, branch, control, gates)
    seen = [*given.findings, *checks.findings_of(branch_trials)]
    known = [*given.control_findings, *checks.findings_of(control_trials)]
    # validity before any number: a score earned by a leak needs no statistics, and must not spend alpha
    valid = checks.validity(branch, seen, known, given.audits, given.shortcuts)
    for gate, end in _before_the_effect(valid, given):
        gates.append(gate)
        if end is not None:
            # only "identical" knows the effect (0); after the other gates no number would mean anything
            nothing = _nothing(given) if gate.gate == "identical" else None
            return settle(end, gate.message, nothing)

    scores = stats.scores_of(branch_trials, config.split), stats.scores_of(control_trials, config.split)
    parts = stats.components(*scores, given.noise, names=(branch, control))
    # one-sided at the look's alpha, so the two-sided interval leaves twice as much outside
    effect = stats.effect_of(parts, 1 - 2 * look.alpha)
    more = _more_seeds(effect, parts, look, config)
    # asked before the verdict and not as a gate in front of it: a proxy that rose with the score is no reason to refuse
    rose = checks.proxy(branch_trials, control_trials, config.split, given.proxy, effect, config.min_effect)
    gates += [_effect_gate(effect, parts, look, more), _size_gate(effect, config), _floor_gate(effect), rose]
    second = readings.second_reading(branch_trials, control_trials, scores, parts, config.split)
    weaker = settings.gate(config, effect)
    dear = compute.gate(branch_trials, control_trials, config.max_cost) if config.max_cost is not None else None
    texts = scaffold.gate(given.scaffold, effect, config.split) if given.scaffold else None
    gates += [g for g in (second, weaker, dear, texts) if g]
    kind, reason = _decide(effect, look, config, rose, "" if more is None else _asked(parts, look, config, more))
    # a suspicion refuses nothing by itself, it only keeps a promotion open until an audit has answered it
    if kind == "promote" and valid.passed is None:
        kind, reason = "inconclusive", f"{valid.message}; the score alone would promote: {reason}"
    # more compute refuses nothing either; it keeps a promotion open until the control has been trained for as long
    if kind == "promote" and dear and dear.passed is False:
        kind, reason = "inconclusive", f"{dear.message}; the score alone would promote: {reason}"
    # a scaffold's gain must not pass as the training's
    if kind == "promote" and texts and scaffold.unmeasured(texts):
        kind, reason = "inconclusive", f"{texts.message}; the score alone would promote: {reason}"
    # the look is spent all the same: the test was made, and its level cannot be given to another branch afterwards
    if kind == "promote" and given.ahead:
        better = f"{given.ahead} gained more in the same round"
        gates.append(GateResult(gate="best_of_round", passed=False, message=better))
        kind, reason = "reject", f"better than {control}, but {better}: {reason}"
    kind, reason, held = guards.judged(kind, reason, given, gates)
    # sentences: neither the second reading nor a temperature refuses anything
    sharpening = second.message if second and (kind == "promote" or second.passed is False) else ""
    temperature_notes = readings.temperatures(branch, branch_trials, control, control_trials, config.split)
    cost = compute.describe(dear) if kind == "promote" else ""
    under = weaker.message if weaker and kind == "promote" else ""
    also = texts.message if texts and kind == "promote" else ""
    return settle(
        kind, "; ".join(filter(None, (reason, held, also, cost, sharpening, temperature_notes, under))), effect, look
    )


def _settled(
    branch: str,
    control: str,
    gates: Sequence[GateResult],
    kind: Kind,
    reason: str,
    effect: Effect | None = None,
    spent: InterimAnalysis | None = None,
) -> Verdict:
    """The verdict; `spent`: the look that it used up."""
    return Verdict(
        branch=branch,
        control=control,
        kind=kind,
        reason=reason,
        effect=effect,
        gates=tuple(gates),
        alpha=spent.alpha if spent else None,
        look=spent.number if spent else 0,
    )


def _before_the_effect(valid: GateResult, given: JudgeInput) -> Iterator[tuple[GateResult, Kind | None]]:
    """Gates that look at no effect, in their order, each with the verdict where it ends the judgement."""
    branch_trials, control_trials, config = given.branch_trials, given.control_trials, given.config
    yield valid, "invalid" if valid.numbers.get("confirmed") else None
    seeds = checks.seeds(given.branch, branch_trials, given.control, control_trials, config.split, config.min_seeds)
    # seeds that can still run leave the question open; seeds that crashed again and again answer it
    lost: Kind = "failed" if seeds.numbers["lost"] else "inconclusive"
    yield seeds, None if seeds.passed else lost
    errors = checks.errors([*branch_trials, *control_trials], config.split, config.max_error_share)
    yield errors, None if errors.passed else "inconclusive"
    coverage = checks.coverage(branch_trials, control_trials, config.split, config.min_task_share)
    yield coverage, None if coverage.passed else "inconclusive"
    same = checks.identical(branch_trials, control_trials, config.split)
    yield same, None if same.passed else "reject"


def _shown(effect: Effect) -> bool:
    """Is it above 0, and above what trainings of one recipe differ by? The latter asks more where few seeds tell the
    noise, while the task part lends the interval degrees of freedom that the trial variance alone does not have."""
    return effect.low > 0 and effect.mean > effect.noise_floor


def _more_seeds(effect: Effect, parts: stats.Components, look: InterimAnalysis, config: JudgeConfig) -> int | None:
    """Seeds per branch that would decide at the next look's level, were the mean to stay; None where none would.

    Where the observed mean would not do, but an effect that is worthwhile is neither excluded nor out of reach: all
    `max_seeds`. A mean that three unlucky seeds hold down is not given up for it.
    """
    # decided already, or the mean is not worth a promotion however certain it became
    if _shown(effect) or effect.mean < config.min_effect:
        return None
    following = _following(look, config)
    n = stats.seeds_needed(parts, following, config.max_seeds)
    if n is not None or config.worthwhile is None:
        return n
    hoped = max(config.worthwhile, config.min_effect)
    # the upper end of a two-sided interval at 2 * 0.95 - 1 is a one-sided 95% bound (a futility stop)
    excluded = stats.effect_of(parts, 2 * FUTILE - 1).high < hoped
    in_reach = stats.seeds_needed(replace(parts, mean=hoped), following, config.max_seeds) is not None
    return config.max_seeds if in_reach and not excluded else None


def _following(look: InterimAnalysis, config: JudgeConfig) -> float:
    """The next look's level. It may get less than its nominal share (the round's branches divide what is free), never
    count on more."""
    return min(look.alpha, config.alpha * share(look.number + 1))


def _asked(parts: stats.Components, look: InterimAnalysis, config: JudgeConfig, seeds: int) -> str:
    """So many seeds as are asked for, and what may be expected of them: the gain will not stay as it was measured."""
    from scipy.special import ndtr

    asked, variance = stats.asked_at(parts, seeds, _following(look, config))
    # how far the mean may move until then, were nothing known of it but this measurement
    moves = max(1e-12, parts.variance(parts.seeds_branch, parts.seeds_control)[0] - variance) ** 0.5
    chance = float(ndtr((parts.mean - max(asked, config.min_effect)) / moves))
    if parts.mean > asked:
        condition = "if the gain stays as it is"
    else:
        condition = f"if it is larger than measured ({100 * (config.worthwhile or 0.0):g} points are not excluded)"
    chance_text = f"the chance of a promotion then, by this look: {chance:.0%}"
    return f"{seeds} seeds per branch would decide {condition}; {chance_text}"


def _decide(
    effect: Effect, look: InterimAnalysis, config: JudgeConfig, rose: GateResult, asked_for: str
) -> tuple[Kind, str]:
    """Promote, reject or ask for seeds (`asked_for`: how many, in words), from the effect and the proxy gate."""
    asked, low, mean, high = (100 * x for x in (config.min_effect, effect.low, effect.mean, effect.high))
    n = decimal_places(
        (effect.low, 0), (effect.mean, config.min_effect), (effect.high, config.min_effect), (effect.high, 0)
    )
    points = f"{mean:+.{n}f} points [{low:+.{n}f}, {high:+.{n}f}]"
    worth = effect.mean >= config.min_effect
    if worth and _shown(effect):
        return "promote", (
            f"gate score {points} over the control with {effect.seeds} seeds; "
            f"noise floor at this look {100 * effect.noise_floor:.1f}, error probability spent {look.alpha:.2g}"
        )
    # `is False`: None means that no proxy was measured
    if rose.passed is False:
        return "reject", f"{rose.message}; gate score {points}"
    # the order names the strongest reason first; all that follow are refusals, they differ in what one learns from them
    if effect.high < 0:
        return "reject", f"harmful: gate score {points}, the whole interval is below 0"
    if effect.high < config.min_effect:
        return "reject", f"gate score {points} excludes a gain of {asked:.{n}f}"
    if not worth:
        return "reject", f"gate score {points} is not the gain of {asked:.{n}f} asked for"
    if not asked_for:
        return "reject", (f"gate score {points} is within the noise and {config.max_seeds} seeds would not settle it")
    unclear = "is within the noise" if effect.low > 0 else "straddles 0"
    return "inconclusive", f"gate score {points} {unclear}; {asked_for}"


def _effect_gate(effect: Effect, parts: stats.Components, look: InterimAnalysis, more: int | None) -> GateResult:
    low = f"{100 * effect.low:+.{decimal_places((effect.low, 0))}f}"
    needed = {} if more is None else {"seeds_needed": float(more)}
    return GateResult(
        gate="effect",
        passed=effect.low > 0,
        message=f"lower bound {low} points at look {look.number} (alpha {look.alpha:.2g})",
        numbers={
            "mean": effect.mean,
            "low": effect.low,
            "p": stats.p_value(effect),
            "v_trial": parts.v_trial,
            "df_trial": float(parts.df_trial),
            "v_task": parts.v_task,
            "v_residual": parts.v_residual,
            "pool_set_aside": float(parts.own_only),
        }
        | needed,
    )


def _size_gate(effect: Effect, config: JudgeConfig) -> GateResult:
    n = decimal_places((effect.mean, config.min_effect))
    return GateResult(
        gate="min_effect",
        passed=effect.mean >= config.min_effect,
        message=f"mean {100 * effect.mean:+.{n}f} points, at least {100 * config.min_effect:.{n}f} asked",
        numbers={"mean": effect.mean, "min_effect": config.min_effect},
    )


def _floor_gate(effect: Effect) -> GateResult:
    n = decimal_places((effect.mean, effect.noise_floor))
    return GateResult(
        gate="noise_floor",
        passed=effect.mean > effect.noise_floor,
        message=f"mean {100 * effect.mean:+.{n}f} points; trainings of one recipe "
        f"differ by up to {noise_floor(effect.noise_floor, n, '')} at this look",
        numbers={"mean": effect.mean, "noise_floor": effect.noise_floor},
    )


def _nothing(given: JudgeInput) -> Effect:
    """The effect of a branch whose trials equal the control's: exactly 0."""
    b, c = (stats.scores_of(t, given.config.split) for t in (given.branch_trials, given.control_trials))
    return Effect(
        mean=0.0,
        low=0.0,
        high=0.0,
        confidence=1 - given.config.alpha,
        se=0.0,
        df=float(max(1, len(b) - 1)),
        seeds=min(len(b), len(c)),
        tasks=len(stats.common_tasks(b, c)),
        noise_floor=0.0,
    )
