"""Two sides of foreign logs, paired by task: the judge's word on the score, and what else changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch
from evotrainer.harness.columns.numerics import Floats, group_means
from evotrainer.judge.inputs import JudgeConfig
from evotrainer.judge.stats import Scores, common_tasks, table
from evotrainer.judge.versus import Comparison, LogSide, contrast, versus
from evotrainer.records import keys
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.output import line
from evotrainer.records.text import clean, counted
from evotrainer.records.verdicts import Effect
from evotrainer.studies.versus.seeds import SeedLog, SideLogs

BEHAVIOUR_CONFIDENCE = 0.95
NAMED = 5
"""Tasks that lack a partner and are named."""
FAR = 0.5
"""How far beyond 0 and 1 scores lie where the scale is another one, and not a small bonus or penalty."""
TEMPLATE = re.compile(r"<\|[^|<>]{1,40}\|>|</?s>|<bos>|<eos>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>")
"""Tokens of chat templates."""
USER = re.compile(r"(?:^|\n)\s*user\s*\n(.*?)(?=\n\s*(?:assistant|model)\s*(?:\n|$)|\Z)", re.DOTALL)
"""The user's first turn between the names of roles, tokens taken out."""
ORDER = {"": 0, "info": 1, "warn": 2, "critical": 3}
SHARES = frozenset(
    (
        "truncated",
        "special_casing",
        "grader_bypass",
        "test_tampering",
        "answer_leak",
        "runs_tests",
        "tool_failures",
    )
)
"""Quantities that are shares of rollouts."""
ONE_SEED = (
    "one training a side: how much trainings of one recipe differ is unknown, so the word speaks of these two "
    "policies' outputs and not of the recipes; give several trainings a side to compare recipes"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity of behaviour, A minus B, each task once."""

    name: str
    a: float
    b: float
    effect: Effect | None
    """None for a single task."""

    @property
    def moved(self) -> bool:
        """Does the interval leave out 0?"""
        return self.effect is not None and not self.effect.low <= 0.0 <= self.effect.high


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A detector that found more on one side: the worst severity of any training of a side, and on how many."""

    detector: str
    a: str
    b: str
    trainings_a: int
    trainings_b: int


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A harness metric that is inside its healthy range on one side and outside on the other; means over trainings."""

    metric: str
    a: float
    b: float
    healthy: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Versus:
    """A compared with B."""

    a: SideLogs
    b: SideLogs
    score: str
    """outcome, reward, or a reward component."""
    shares: bool
    """Scores lie in [0, 1]: they are told in percent and points."""
    comparison: Comparison
    means: tuple[float, float]
    per_seed: tuple[tuple[float, ...], tuple[float, ...]]
    """Mean score of each training over the common tasks."""
    tasks: tuple[int, int]
    """Tasks that every training scored, tasks that any did."""
    counts: Mapping[str, int]
    """better, worse, alike: common tasks by their mean score."""
    only: tuple[tuple[int, tuple[str, ...]], tuple[int, tuple[str, ...]]]
    """Tasks of A alone and of B alone: how many, and the first by name."""
    behaviour: tuple[Difference, ...]
    findings: tuple[FindingChange, ...]
    metrics: tuple[MetricChange, ...]
    notes: tuple[str, ...]


def compare(
    a: SideLogs,
    b: SideLogs,
    *,
    score: str | None = None,
    alpha: float = 0.025,
    margin: float | None = None,
    common: bool = False,
    reworded: bool = False,
) -> Versus:
    """`score`: outcome, reward or a component; default: the outcome where all trainings record one, else the reward.
    `reworded`: tasks of one id are the same whatever their prompts.

    Raises ConfigError where a side records no such score, where splits differ, where no two tasks are on both sides,
    where a task has other prompts there, or where scores that nobody named lie on other scales.
    """
    _check_splits(a, b)
    if a.unknown and b.unknown:
        raise ConfigError(a.unknown)
    asked, score = score, score or _default_score([*a.seeds, *b.seeds])
    tables = [_table(side, score, name) for side, name in ((a, "A"), (b, "B"))]
    tasks = common_tasks(*tables)
    if len(tasks) < 2:
        raise ConfigError(_no_pairs(a, b, tables, len(tasks)))
    prompts = check_prompts(a, b, tasks, reworded)
    (low_a, high_a), (low_b, high_b) = ranges = [_range(side, score) for side in (a, b)]
    shares = min(low_a, low_b) >= 0.0 and max(high_a, high_b) <= 1.0
    scale = _scales(ranges, score, asked)
    sides = [_log_side(name, logs, t, score) for name, logs, t in zip("AB", (a, b), tables, strict=True)]
    show = f"evotrainer audit {a.seeds[0].path}"
    done = versus(*sides, alpha=alpha, margin=margin, common=common, show=show, shares=shares)
    y_a, y_b = (table(t, tasks) for t in tables)
    d = y_a.mean(axis=0) - y_b.mean(axis=0)
    better, worse = int((d > 1e-9).sum()), int((d < -1e-9).sum())
    every = [{k for per_task in t.values() for k in per_task} for t in tables]
    return Versus(
        a=a,
        b=b,
        score=score,
        shares=shares,
        comparison=done,
        means=(float(y_a.mean()), float(y_b.mean())),
        per_seed=(tuple(y_a.mean(axis=1).tolist()), tuple(y_b.mean(axis=1).tolist())),
        tasks=(len(tasks), len(every[0] | every[1])),
        counts={"better": better, "worse": worse, "alike": len(d) - better - worse},
        only=(_only(a, every[0] - every[1]), _only(b, every[1] - every[0])),
        behaviour=_behaviour(a, b),
        findings=_findings(a, b),
        metrics=_metrics(a, b),
        notes=(
            *_passed_over(a, b, score, asked),
            *scale,
            *prompts,
            *_of_side(a),
            *_of_side(b),
            *_notes(a, b, tables, score),
        ),
    )


def _of_side(x: SideLogs) -> tuple[str, ...]:
    return (*x.notes, *([f"{x.unknown}; taken as one training"] if x.unknown else ()))


def _check_splits(a: SideLogs, b: SideLogs) -> None:
    sides = [frozenset().union(*(s.splits for s in x.seeds)) for x in (a, b)]
    if sides[0] != sides[1] and all("" not in s for s in sides):
        names = [", ".join(sorted(s)) for s in sides]
        raise ConfigError(
            f"A was scored on split {names[0]}, B on {names[1]}: their tasks are not the same; "
            "choose a split that both have with --split"
        )


def check_prompts(a: SideLogs, b: SideLogs, tasks: Sequence[str], reworded: bool) -> list[str]:
    """ConfigError where trainings were asked other things under one task's id; a note where the user said that it is so
    (`reworded`), or where only what stands around differs (a chat template, a system prompt inside). What records no
    prompt is compared with nothing."""
    held = [(s, p) for s in (*a.seeds, *b.seeds) if (p := s.prompts(tasks))]
    around = 0
    for s, prompts in held[1:]:
        first, known = held[0]
        both = [k for k in prompts if k in known and prompts[k].split() != known[k].split()]
        other = [k for k in both if not _same_question(known[k], prompts[k])]
        if other and not reworded:
            name = first.task_names(other[:1])[0]
            texts = [line(clean(p[other[0]], 80)) for p in (known, prompts)]
            raise ConfigError(
                f"{counted(len(other), 'task')} of {len(tasks)} have other prompts under one id, e.g. task {name}: "
                f"{texts[0]!r} in {first.name}, {texts[1]!r} in {s.name}; give logs of the same tasks, name a "
                "column that tells tasks apart (--map task=COLUMN), or say that they are the same: --other-prompts"
            )
        around = max(around, len(both))
    what = "the prompts differ" if reworded else "the question is the same, what stands around it (template) is not"
    return [f"{counted(around, 'task')} of {len(tasks)}: {what}"] if around else []


def _same_question(a: str, b: str) -> bool:
    """Equal but for spaces and template tokens, or one inside the other."""
    x, y = (" ".join(["", *_question(t).split(), ""]) for t in (a, b))
    return len(x) > 2 and len(y) > 2 and (x in y or y in x)


def _question(prompt: str) -> str:
    """What the user says inside a rendered chat template; the prompt itself where it is none."""
    bare = TEMPLATE.sub("\n", prompt)
    found = USER.search(bare) if bare != prompt else None
    return found[1] if found else bare


def _range(side: SideLogs, score: str) -> tuple[float, float]:
    values = np.concatenate([_values(s.batch, score) for s in side.seeds])
    return float(np.nanmin(values)), float(np.nanmax(values))


def _scales(ranges: Sequence[tuple[float, float]], score: str, asked: str | None) -> list[str]:
    """ConfigError where one side's scores are shares and the other's are none, far off, unless the user named the
    score; then a note."""
    inside = [low >= 0 and high <= 1 for low, high in ranges]
    far = any(low < -FAR or high > 1 + FAR for low, high in ranges)
    if score == "outcome" or not far or inside[0] == inside[1]:
        return []
    told = " and ".join(f"{low:g} to {high:g} in {x}" for x, (low, high) in zip("AB", ranges, strict=True))
    if asked is None:
        raise ConfigError(
            f"the {score} lies on two scales, {told}; bring both to one scale, or compare them as they "
            f"are: --score {score}"
        )
    return [f"{score} lies in {told}: compared as it is, since --score names it"]


def _passed_over(a: SideLogs, b: SideLogs, score: str, asked: str | None) -> list[str]:
    """Says so where an outcome is recorded and something else is the score."""
    known = [float(np.mean([np.isfinite(s.batch.truth).mean() for s in x.seeds])) for x in (a, b)]
    if asked is not None or score == "outcome" or not any(known):
        return []
    return [
        f"the score is {score}: an outcome is known of {known[0]:.0%} of A's rollouts and {known[1]:.0%} of B's, so it "
        "is passed over; record it on both sides, or choose with --score"
    ]


def _values(batch: Batch, score: str) -> Floats:
    return {"outcome": lambda: batch.truth, "reward": lambda: batch.reward}.get(score, lambda: batch.component(score))()


def _default_score(seeds: Sequence[SeedLog]) -> str:
    """What all trainings record, of (nearly) all their rollouts before of some: the outcome, else the reward, else the
    one component that there is. TRL's logs tell a reward only where the advantages confirm it."""
    shared = set.intersection(*(set(s.batch.component_names) for s in seeds))
    names = ("outcome", "reward", *(shared if len(shared) == 1 else ()))
    known = {n: min(float(np.isfinite(_values(s.batch, n)).mean()) for s in seeds) for n in names}
    whole = (n for n in names if known[n] >= 1 - JudgeConfig().max_error_share)
    return next(whole, next((n for n in names if known[n]), "reward"))


def _table(side: SideLogs, score: str, name: str) -> dict[int, dict[str, float]]:
    """Seed number -> task -> score; ConfigError where a training has none."""
    out = {}
    for i, s in enumerate(side.seeds, 1):
        out[i] = s.by_task(_values(s.batch, score))
        if not out[i]:
            there = [n for n in ("outcome", "reward", *s.batch.component_names) if s.by_task(_values(s.batch, n))]
            remedy = (
                f"it has {', '.join(there)}: choose with --score" if there else "name its column: --map reward=COLUMN"
            )
            raise ConfigError(f"no rollout of {s.name} (side {name}) has a score {score!r}; {remedy}")
    return out


def _log_side(name: str, logs: SideLogs, scores: Scores, score: str) -> LogSide:
    trials = [_trial(name, i, s, scores[i], score) for i, s in enumerate(logs.seeds, 1)]
    return LogSide(name, trials, _claims(logs), [s.name for s in logs.seeds])


def _trial(side: str, seed: int, s: SeedLog, per_task: Mapping[str, float], score: str) -> TrialFinished:
    """A training as the judge knows one. A rollout without a score was lost to it as one with a fault was."""
    values = _values(s.batch, score)
    scored = int(np.isfinite(values).sum())
    lost = s.batch.n - scored + s.faults
    mean = sum(per_task.values()) / len(per_task)
    read = SplitScore(
        split="gate",
        step=0,
        score=mean,
        attempts=max(1, round((scored + lost) / len(per_task))),
        per_task=dict(per_task),
        errors=lost,
    )
    return TrialFinished(
        trial=keys.training(side.lower(), seed),
        branch=side,
        seed=seed,
        status="complete",
        cpu_s=0.0,
        wall_s=0.0,
        steps=0,
        scores=(read,),
    )


def _claims(side: SideLogs) -> list[Finding]:
    return [f for s in side.seeds for f in s.health.findings if f.validity and not f.missing]


def _no_pairs(a: SideLogs, b: SideLogs, tables: Sequence[Scores], n: int) -> str:
    have = []
    for name, side, t in (("A", a, tables[0]), ("B", b, tables[1])):
        tasks = sorted({k for per_task in t.values() for k in per_task})
        some = [n for s in side.seeds for n in s.task_names(tasks[:3])][:3]
        have.append(f"{name} has {len(tasks)} ({', '.join(sorted(some))})")
    return (
        f"{'no task' if not n else '1 task only'} is scored by all trainings: {' and '.join(have)}; tasks are paired "
        "by their id (--map task=COLUMN names its column, without one it is the prompt), give both sides the same"
    )


def _only(side: SideLogs, tasks: set[str]) -> tuple[int, tuple[str, ...]]:
    names: dict[str, None] = {}
    some = sorted(tasks)[:NAMED]
    for s in side.seeds:
        names |= dict.fromkeys(s.task_names(some))
    return len(tasks), tuple(sorted(names))[:NAMED]


def _notes(a: SideLogs, b: SideLogs, tables: Sequence[Scores], score: str) -> list[str]:
    held = {s.content: s.name for s in a.seeds}
    out = [
        f"{held[s.content]} and {s.name} hold the same rollouts: is one the wrong file?"
        for s in b.seeds
        if s.content in held
    ]
    out += [ONE_SEED] * (len(a.seeds) == len(b.seeds) == 1)
    attempts = [
        sum(s.batch.n for s in x.seeds) / sum(map(len, t.values())) for x, t in zip((a, b), tables, strict=True)
    ]
    if abs(attempts[0] - attempts[1]) > 0.5:
        out.append(
            f"A has {attempts[0]:.1f} attempts a task, B {attempts[1]:.1f}: means are compared, so neither is "
            "favoured, but best-of or majority scores would be"
        )
    for name, x in (("A", a), ("B", b)):
        lost = sum(int(np.isnan(_values(s.batch, score)).sum()) for s in x.seeds)
        faults = sum(s.faults for s in x.seeds)
        if lost or faults:
            out.append(f"{counted(lost + faults, 'rollout')} of {name} without a score (faults: {faults}), in no mean")
    if any("" in s.splits for s in a.seeds) != any("" in s.splits for s in b.seeds):
        out.append("only one side says which split its tasks are of")
    return out


def quantities(b: Batch) -> dict[str, Floats]:
    """What is compared besides the score, one value a rollout; only what is known of some rollout."""

    def above(name: str) -> Floats:
        x = b.trait(name)
        return np.where(np.isnan(x), np.nan, (x > 0).astype(float))

    acts, ok = np.where(b.acting, 1.0, np.nan), b.traits.calls["ok"]
    out = {
        "outcome": b.truth,
        "reward": b.reward,
        **{f"component {c}": b.component(c) for c in b.component_names},
        "tokens": b.tokens,
        "words": b.trait("words"),
        "turns": b.trait("turns"),
        "actions": b.trait("actions") * acts,
        "edits": b.trait("edits") * acts,
        "runs_tests": above("tests") * acts,
        "tool_failures": group_means(np.where(ok < 0, np.nan, ok == 0), b.traits.calls["row"], b.n),
        "truncated": b.truncated,
        "repetition": b.trait("repetition"),
        "special_casing": above("special"),
        "grader_bypass": above("bypass"),
        "test_tampering": above("tampers"),
        "answer_leak": above("leaks"),
        "entropy": b.entropy,
        "mean_logprob": b.mean_logprob,
    }
    return {k: v for k, v in out.items() if np.isfinite(v).any()}


def _behaviour(a: SideLogs, b: SideLogs) -> tuple[Difference, ...]:
    """Every quantity that all trainings record, by the same contrast as the score."""
    sides = [[(s, quantities(s.batch)) for s in x.seeds] for x in (a, b)]
    names = [n for n in sides[0][0][1] if all(n in q for side in sides for _, q in side)]
    out = []
    for name in names:
        tables = [{i: s.by_task(q[name]) for i, (s, q) in enumerate(side, 1)} for side in sides]
        tasks = common_tasks(*tables)
        if not tasks:
            continue
        effect = contrast(tables[0], tables[1], BEHAVIOUR_CONFIDENCE) if len(tasks) > 1 else None
        out.append(Difference(name, _mean(tables[0], tasks), _mean(tables[1], tasks), effect))
    return tuple(out)


def _mean(scores: Scores, tasks: Sequence[str]) -> float:
    return float(table(scores, tasks).mean())


def _findings(a: SideLogs, b: SideLogs) -> tuple[FindingChange, ...]:
    worst: list[dict[str, list[str]]] = [{}, {}]
    for found, side in zip(worst, (a, b), strict=True):
        for s in side.seeds:
            mine: dict[str, str] = {}
            for f in (f for f in s.health.findings if not f.missing):
                mine[f.detector] = max(mine.get(f.detector, ""), f.severity, key=lambda x: ORDER[x])
            for detector, severity in mine.items():
                found.setdefault(detector, []).append(severity)
    top = [{d: max(levels, key=lambda x: ORDER[x]) for d, levels in x.items()} for x in worst]
    rows = [
        FindingChange(d, top[0].get(d, ""), top[1].get(d, ""), len(worst[0].get(d, ())), len(worst[1].get(d, ())))
        for d in sorted({*top[0], *top[1]})
    ]
    changed = [r for r in rows if r.a != r.b]
    return tuple(sorted(changed, key=lambda r: -max(ORDER[r.a], ORDER[r.b])))


def _metrics(a: SideLogs, b: SideLogs) -> tuple[MetricChange, ...]:
    out = []
    for m in a.seeds[0].health.metrics:
        if m.healthy is None:
            continue
        read = [[s.health.metric(m.name) for s in x.seeds] for x in (a, b)]
        if any(v is None for side in read for v in side):
            continue
        means = [sum(v for v in side if v is not None) / len(side) for side in read]
        inside = [m.model_copy(update={"value": v}).in_range for v in means]
        if inside[0] != inside[1]:
            out.append(MetricChange(m.name, means[0], means[1], m.healthy))
    return tuple(out)
