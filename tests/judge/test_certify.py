"""`judge.certify`: certification on a split that nobody has chosen by."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.errors import ConfigError
from evotrainer.judge import CertEntry, certify
from evotrainer.judge.simulate import Population

POP = Population(tasks=200)


def entry(name: str, branch: str, effect: float, seeds: int, rng: np.random.Generator, p_T: object) -> CertEntry:
    """A family of policies with a planted effect over the base."""
    trials = POP.trials(branch, p_T, range(1, seeds + 1), rng, effect=effect)
    return CertEntry(name=name, branch=branch, scores={t.seed: t.scores[0] for t in trials})


def trio(effects: tuple[float, float], seed: int) -> list[CertEntry]:
    """Base (one policy), start and champion (three seeds each)."""
    rng = np.random.default_rng(seed)
    p_T = POP.difficulties(rng)
    base = POP.trials("base", p_T, [0], rng, seed_sd=0.0)
    start, champion = (
        entry(n, b, e, 3, rng, p_T) for n, b, e in zip(("start", "champion"), ("b0", "b4"), effects, strict=True)
    )
    return [CertEntry(name="base", branch="", scores={0: base[0].scores[0]}), start, champion]


def test_a_real_gain_is_certified_and_ordered() -> None:
    result = certify(trio((0.10, 0.22), 1), "b4")
    assert [r.name for r in result.rows] == ["base", "start", "champion"]
    assert set(result.comparisons) == {"champion-start", "champion-base", "start-base"}
    assert result.comparisons["champion-base"]["low"] > 0
    assert result.comparisons["champion-base"]["mean"] == pytest.approx(0.22, abs=0.05)
    for row in result.rows:
        assert row.low <= row.score <= row.high
    assert len(result.rows[2].per_seed) == 3


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = sum(
        (c := certify(trio((0.0, 0.0), seed), "b4").comparisons["champion-start"])["low"] <= 0 <= c["high"]
        for seed in range(60)
    )
    # 95% asked: fewer than 50 of 60 has probability below 1e-3
    assert covered >= 50


def test_the_proxy_gap_is_reported_beside_the_score() -> None:
    entries = trio((0.1, 0.2), 2)
    scores = {
        s: x.model_copy(update={"components": {"shown": 0.8, "kept_back": 0.65}}) for s, x in entries[1].scores.items()
    }
    entries[1] = entries[1].model_copy(update={"scores": scores})
    result = certify(entries, "b4", proxy=("shown", "kept_back"))
    assert result.rows[1].proxy_gap == pytest.approx(0.15)
    assert result.rows[0].proxy_gap is None


def test_policies_without_common_tasks_are_refused() -> None:
    entries = trio((0.1, 0.2), 2)
    score = entries[0].scores[0].model_copy(update={"per_task": {"elsewhere": 1.0}})
    entries[0] = entries[0].model_copy(update={"scores": {0: score}})
    with pytest.raises(ConfigError, match="share no scored cert task"):
        certify(entries, "b4")


def rare(
    p: float, rng: np.random.Generator, tasks: int = 150, weights: tuple[str, str] = ("w0", "w1")
) -> list[CertEntry]:
    """Base and a start of three seeds that all solve each task with chance `p`."""
    p_T = np.full(tasks, p)
    sides = [("base", "", [0]), ("start", "b0", [1, 2, 3])]
    out = []
    for (name, branch, seeds), w in zip(sides, weights, strict=True):
        trials = Population(tasks=tasks).trials(branch or "base", p_T, seeds, rng, seed_sd=0.0)
        scores = {t.seed: t.scores[0] for t in trials}
        out.append(CertEntry(name=name, branch=branch, scores=scores, policies=frozenset({w} if w else ())))
    return out


def test_policies_of_the_same_weights_differ_by_nothing() -> None:
    found = certify(rare(0.3, np.random.default_rng(1), weights=("w", "w")), "b0").comparisons["start-base"]
    assert (found["mean"], found["low"], found["high"], found["p"]) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_attempts_that_all_end_alike_have_an_interval(p: float) -> None:
    base, _ = certify(rare(p, np.random.default_rng(1)), "b0").rows
    edge = 1 - 0.025 ** (1 / 150)
    assert (base.low, base.high) == pytest.approx((0.0, edge) if p == 0 else (1 - edge, 1.0))
