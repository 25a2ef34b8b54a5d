"""Certification: the cert split, read once, with intervals over tasks and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from evotrainer.errors import ConfigError
from evotrainer.judge.readings import CONFIDENCE, SHARED
from evotrainer.judge.stats import Spread, common_tasks, spread, t_quantile, t_tail, table
from evotrainer.records.events import Certified, CertRow, NoiseMeasured, SplitScore
from evotrainer.records.frozen import Frozen


class CertEntry(Frozen):
    """One family of policies to certify: `name` base, start, champion, ..., one score per seed."""

    name: str
    branch: str
    scores: dict[int, SplitScore] = Field(min_length=1)
    decoding: Literal["sampled", "greedy"] | None = None
    """How its policies decode where each policy decodes as suits it, chosen on search; None: nobody chose."""
    policies: frozenset[str] = frozenset()
    """SHA-256 of their weights; empty: not recorded."""


def certify(
    entries: Sequence[CertEntry],
    champion: str,
    *,
    confidence: float = 0.95,
    proxy: tuple[str, str] | None = None,
    noise: NoiseMeasured | None = None,
) -> Certified:
    """Rows with two-sided intervals, and paired comparisons `<a>-<b>` of the last entry against the earlier ones, the
    last but one against its predecessors, and so on (`champion-start`, `champion-base`, `start-base`).

    A family of one policy (base) has no seed variance: its claim is about that policy, its error is that of the
    attempts and tasks. Families with several seeds share one pooled between-seed variance, joined by `noise` where
    given. With `policies` given, families of the same weights differ by exactly 0, and where every attempt of a family
    ended alike its interval is that of Clopper and Pearson over tasks.
    """
    per_family = {e.name: {s: x.per_task for s, x in e.scores.items()} for e in entries}
    tasks = common_tasks(*per_family.values())
    if not tasks:
        raise ConfigError("certify: the policies share no scored cert task; evaluate all on the cert split")
    tables = {name: table(scores, tasks) for name, scores in per_family.items()}
    attempts = {e.name: max(s.attempts for s in e.scores.values()) for e in entries}
    sampling = {name: _sampling_variance(y, attempts[name]) for name, y in tables.items()}
    # one variance for all families: three trainings each say too little alone, and no family is expected to be noisier
    v_seed, df_seed = _seed_variance([spread(y) for y in tables.values()], noise, len(tasks))
    families = {
        e.name: _Family(tables[e.name], sampling[e.name], v_seed if len(e.scores) > 1 else 0.0, df_seed)
        for e in entries
    }
    rows = tuple(_row(e, families[e.name], confidence, proxy) for e in entries)
    comparisons = {f"{a}-{b}": _compare(families[a], families[b], confidence) for a, b in _pairs(entries)}
    greedy, chosen = _read_greedily(entries, tables, families, tasks)
    weights = {e.name: e.policies for e in entries}
    for a, b in _pairs(entries):
        if weights[a] and weights[a] == weights[b]:
            name = f"{a}-{b}"
            comparisons[name] = SAME.copy()
            greedy, chosen = ({k: v for k, v in x.items() if k != name} for x in (greedy, chosen))
    return Certified(rows=rows, champion=champion, comparisons=comparisons, greedy=greedy, chosen=chosen)


Comparisons = dict[str, dict[str, float]]
SAME = {"mean": 0.0, "low": 0.0, "high": 0.0, "se": 0.0, "df": 1.0, "p": 1.0, "same_weights": 1.0}
"""Policies of the same weights: what their evaluations differ by is the attempts' luck."""


def _read_greedily(
    entries: Sequence[CertEntry], tables: Mapping[str, Any], sampled: Mapping[str, _Family], tasks: Sequence[str]
) -> tuple[Comparisons, Comparisons]:
    """The comparisons by greedy decoding, and those of each policy as it decodes best on search; empty where a policy
    was not read so."""
    if not all(s.greedy_per_task for e in entries for s in e.scores.values()):
        return {}, {}
    both = common_tasks(*({s: x.greedy_per_task for s, x in e.scores.items()} for e in entries))
    kept = [i for i, t in enumerate(tasks) if t in set(both)]
    if not kept:
        return {}, {}
    shared = [tasks[i] for i in kept]
    greedy = {e.name: table({s: x.greedy_per_task for s, x in e.scores.items()}, shared) for e in entries}
    rest = {name: y - SHARED * tables[name][:, kept] for name, y in greedy.items()}
    # greedy decoding draws nothing: no variance of attempts apart from what shows between tasks
    g, r = (_families(entries, y, dict.fromkeys(tables, 0.0)) for y in (greedy, rest))
    out = {
        f"{a}-{b}": _compare(g[a], g[b], 0.95)
        | {
            "sampled_low": _compare(sampled[a], sampled[b], CONFIDENCE)["low"],
            "excess_high": _compare(r[a], r[b], CONFIDENCE)["high"],
        }
        for a, b in _pairs(entries)
    }
    if not all(e.decoding for e in entries):
        return out, {}
    is_greedy = {e.name: e.decoding == "greedy" for e in entries}
    as_chosen = {name: greedy[name] if is_greedy[name] else y[:, kept] for name, y in tables.items()}
    noise = {name: 0.0 if is_greedy[name] else sampled[name].v_cell for name in tables}
    c = _families(entries, as_chosen, noise)
    return out, {f"{a}-{b}": _compare(c[a], c[b], 0.95) for a, b in _pairs(entries)}


def _pairs(entries: Sequence[CertEntry]) -> list[tuple[str, str]]:
    """Each family with all that were entered before it: the last is the champion, a sign is "later minus earlier"."""
    names = [e.name for e in entries]
    return [(a, b) for i, a in reversed(list(enumerate(names))) for b in reversed(names[:i])]


def _families(
    entries: Sequence[CertEntry], tables: Mapping[str, Any], v_sampling: Mapping[str, float]
) -> dict[str, _Family]:
    v_seed, df = _seed_variance([spread(y) for y in tables.values()], None, next(iter(tables.values())).shape[1])
    return {
        e.name: _Family(tables[e.name], v_sampling[e.name], v_seed if len(e.scores) > 1 else 0.0, df) for e in entries
    }


class _Family:
    """Mean, task table and error of one family of policies."""

    def __init__(self, y_ST: Any, v_sampling: float, v_seed: float, df_seed: float) -> None:
        self.y_T = y_ST.mean(axis=0)
        self.seeds, self.tasks = y_ST.shape
        # per cell of the S x T table, and of the family's mean score between trainings
        self.v_cell = v_sampling
        self.v_seed = max(v_seed, v_sampling / self.tasks) / self.seeds if v_seed else v_sampling / self.tasks
        # one policy: its error is that of its cells, of which there are so many
        self.df_seed = df_seed if v_seed else float(self.seeds * self.tasks)


def _sampling_variance(y_ST: Any, attempts: int) -> float:
    """Variance of one task's score by its attempts alone: p(1-p)/(n-1), which is unbiased for p(1-p)/n."""
    if attempts < 2:
        # one attempt shows no spread of its own: the Bernoulli variance at the observed mean bounds it from above
        p = float(y_ST.mean())
        return p * (1 - p)
    return float((y_ST * (1 - y_ST)).mean() / (attempts - 1))


def _seed_variance(spreads: Sequence[Spread], noise: NoiseMeasured | None, tasks: int) -> tuple[float, float]:
    """Pooled variance of a trial's mean between seeds, and its degrees of freedom; (0, 0) where nothing tells."""
    ss, df = sum(s.ss_trial for s in spreads), float(sum(s.df_trial for s in spreads))
    if noise is not None:
        extra = noise.numbers.get("df", float(len(noise.seeds) - 1))
        # `seed_sd` is a pooled standard deviation: times its degrees of freedom it is a sum of squares again, which can
        # be added
        ss, df = ss + noise.seed_sd**2 * extra, df + extra
    residual = sum(s.ss_residual for s in spreads) / max(1, sum(s.df_residual for s in spreads))
    # as in stats.components: trainings cannot agree better than the residual of their cells allows
    return (max(ss / df, residual / tasks), df) if df else (0.0, 0.0)


def _interval(mean: float, parts: Mapping[float, float], confidence: float) -> tuple[float, float, float, float]:
    """(low, high, se, df) from variance parts keyed by their degrees of freedom (Satterthwaite)."""
    var = sum(parts.values())
    if var <= 0:
        return mean, mean, 0.0, 1.0
    # Satterthwaite (1946)
    df = var**2 / sum(v * v / d for d, v in parts.items() if d > 0)
    half = t_quantile(0.5 + confidence / 2, df) * var**0.5
    return mean - half, mean + half, var**0.5, df


def _task_variance(y_T: Any, cells: float) -> float:
    """Variance between tasks beyond what the cells' own noise explains; 0 for a single task."""
    return max(0.0, float(y_T.var(ddof=1)) - cells) if len(y_T) > 1 else 0.0


def _row(e: CertEntry, f: _Family, confidence: float, proxy: tuple[str, str] | None) -> CertRow:
    mean = float(f.y_T.mean())
    # tasks count as a sample here: the certificate speaks of tasks like these, not of these tasks only
    v_task = _task_variance(f.y_T, f.v_cell / f.seeds) / f.tasks
    low, high, _, _ = _interval(mean, _merge((f.df_seed, f.v_seed), (f.tasks - 1, v_task)), confidence)
    if e.policies and mean in (0.0, 1.0):
        # Clopper and Pearson (1934) at no success, or no failure: attempts that all end alike show no spread
        edge = ((1 - confidence) / 2) ** (1 / f.tasks)
        low, high = (0.0, 1 - edge) if mean == 0 else (edge, 1.0)
    scores = [e.scores[s] for s in sorted(e.scores)]
    greedy = [s.greedy for s in scores if s.greedy is not None]
    names = sorted(set.intersection(*(set(s.components) for s in scores)))
    # components that only some seeds recorded would average over other seeds than the score does
    means = {n: sum(s.components[n] for s in scores) / len(scores) for n in names}
    gap = means[proxy[0]] - means[proxy[1]] if proxy and proxy[0] in means and proxy[1] in means else None
    return CertRow(
        name=e.name,
        branch=e.branch,
        seeds=tuple(sorted(e.scores)),
        score=mean,
        # a share; the t interval does not know that it ends at 0 and 1
        low=max(0.0, low),
        high=min(1.0, high),
        per_seed=tuple(sum(s.per_task.values()) / len(s.per_task) for s in scores),
        components=means,
        proxy_gap=gap,
        greedy=sum(greedy) / len(scores) if len(greedy) == len(scores) else None,
        temperature=scores[0].temperature,
        decoding=e.decoding,
    )


def _compare(a: _Family, b: _Family, confidence: float) -> dict[str, float]:
    """a minus b, paired by task: mean, low, high, se, df and two-sided p."""
    # paired by task: how hard a task is cancels, only how differently the two families take it remains
    d_T = a.y_T - b.y_T
    mean = float(d_T.mean())
    v_task = _task_variance(d_T, a.v_cell / a.seeds + b.v_cell / b.seeds) / a.tasks
    parts = _merge((a.df_seed, a.v_seed), (b.df_seed, b.v_seed), (a.tasks - 1, v_task))
    low, high, se, df = _interval(mean, parts, confidence)
    # no variance at all: equal means are no evidence (p = 1), different ones are certain (p = 0)
    p = 1.0 if mean == 0 else 0.0
    if se:
        p = 2 * t_tail(abs(mean) / se, df)
    return {"mean": mean, "low": low, "high": high, "se": se, "df": df, "p": p}


def _merge(*parts: tuple[float, float]) -> dict[float, float]:
    """Variance parts by degrees of freedom; parts with the same degrees come from one estimate and add up."""
    out: dict[float, float] = {}
    for df, v in parts:
        out[max(float(df), 1.0)] = out.get(max(float(df), 1.0), 0.0) + v
    return out
