"""Control arms do what their names say, on response surfaces with a planted optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench.compare.agents.control import ControlArm
from bench.compare.agents.score_only import ScoreOnly

from evotrainer.agents import make_agent
from evotrainer.agents.base import Searcher
from evotrainer.agents.pooled import PooledAgent, PooledOptions, reasoning
from evotrainer.agents.single_changes import knowledge_gradients
from evotrainer.errors import ConfigError
from evotrainer.projections.pooled import Prior, TrainingScore, dearer, fit
from evotrainer.records.briefing import BranchRecord, Briefing, PromotionThreshold
from evotrainer.records.recipe import Recipe, diff
from evotrainer.records.search import ProbeRecord, SearchChoice, SearchPlan
from tests.agents.briefings import START, FakeTools, briefing, health, record

HELPS = {"temperature": 0.08, "group_size": 0.06, "loss": -0.05}
"""Factor -> what any other value than the start's is worth."""
CONTROLS = ("random_recipes", "greedy", "tpe", "best_of_n")


def worth(recipe: Recipe) -> float:
    """A noise-free score."""
    return 0.5 + sum(HELPS.get(f, -0.004) for f in diff(START, recipe))


def opened(scores: tuple[float, ...] = (0.5, 0.5, 0.5), workers: int = 1) -> Briefing:
    b = briefing(START, health(entropy=1.0))
    champion = b.champion.model_copy(update={"scores": scores})
    return b.model_copy(
        update={"champion": champion, "branches": (champion,), "changes": 100, "notes": {"workers": str(workers)}}
    )


def drive(
    agent: Any,
    trainings: int,
    score: Callable[[Recipe, int], float] = lambda r, n: worth(r),
    workers: int = 1,
    start: Briefing | None = None,
) -> tuple[list[ProbeRecord], SearchChoice]:
    """A search to its end, each training scored at once: (its trainings, what it settles on)."""
    b, done = start or opened(workers=workers), list[ProbeRecord]()
    while True:
        b = b.model_copy(update={"probes": tuple(done), "probes_left": trainings - len(done)})
        plan: SearchPlan = agent.search(b, FakeTools())
        assert len(plan.probes) <= min(workers, trainings - len(done))
        if not plan.probes:
            assert plan.stop and plan.choice is not None
            return done, plan.choice
        for p in plan.probes:
            recipe, n = START.with_changes(p.changes), len(done) + 1
            done.append(
                ProbeRecord(
                    probe=f"p{n}", round=1, incumbent="b0", changes=p.changes, recipe=recipe, seed=1000 + n,
                    score=score(recipe, n),
                )
            )  # fmt: skip


def test_a_change_with_a_good_prior_is_trained_before_the_search_may_end() -> None:
    """It is no choice until somebody tried it; and where one training decides nothing, several of it may."""
    agent = PooledAgent(0)
    s = agent._open(opened((0.46, 0.60, 0.62)), FakeTools())
    seen = [TrainingScore(START, x) for x in (0.46, 0.60, 0.62)]
    gains = [x for a in s.arms for x in a.gains]
    s.model = fit(START, seen, {x: Prior(0.06, 0.005) if x == gains[0] else Prior(-0.02, 0.005) for x in gains}, gains)
    near = s.usable
    promising = knowledge_gradients(s, near, 36)
    assert gains[0] in near[int(promising.argmax())].gains and promising.max() > 0.02
    noisy = [TrainingScore(START, x) for x in (0.3, 0.6, 0.8)]
    s.model = fit(START, noisy, {x: Prior(-0.02, 0.03) for x in gains}, gains)
    assert knowledge_gradients(s, near, 36).max() > 1.5 * knowledge_gradients(s, near, 1).max()
    s.model = fit(START, seen, {x: Prior(-0.06, 0.01) for x in gains}, gains)
    assert knowledge_gradients(s, near, 36).max() < 1e-4


def test_each_factor_is_screened_once_and_every_training_changes_one_at_most() -> None:
    done, _ = drive(PooledAgent(0), 24, workers=3)
    assert len({f for p in done[:14] for f in p.changes}) == 14
    assert all(len(p.changes) == 1 for p in done[:14]) and all(len(p.changes) <= 1 for p in done)


def test_between_noisy_trainings_the_best_single_changes_are_trained_again() -> None:
    rng = np.random.default_rng(2)

    def noisy(recipe: Recipe, n: int) -> float:
        return worth(recipe) + 0.08 * float(rng.standard_normal())

    start = opened((0.30, 0.42, 0.46))
    done, _ = drive(PooledAgent(0), 30, score=noisy, start=start)
    again, screened = done[14:22], {f for p in done[:14] for f in p.changes}
    assert all(len(p.changes) == 1 and set(p.changes) <= screened for p in again)
    tried = {p.recipe.hash for p in done[:14]}
    assert {p.recipe.hash in tried for p in again} == {True, False}, "the same values, and others of the same factors"


def test_what_dearer_trainings_cost_is_counted_coarsely() -> None:
    def took(seconds: float | None, tokens: float | None = None) -> BranchRecord:
        return start.model_copy(update={"training_s": seconds, "training_tokens": tokens})

    start = BranchRecord(branch="b0", parent=None, round=0, recipe=Recipe())
    ten = took(10.0)
    assert dearer(took(None), ten) == dearer(ten, took(None)) == dearer(took(10.9), ten) == 0
    assert dearer(took(12.5), ten) == 0.2 and dearer(took(7.0), ten) == -0.4
    assert dearer(took(40.0, 1250), took(10.0, 1000)) == 0.2, "tokens are the same in a busy hour"
    assert dearer(took(12.5, 9999), ten) == 0.2


@pytest.mark.parametrize("seed", range(5))
def test_the_chance_of_a_promotion_rests_on_the_trainings_and_not_on_the_hopes(seed: int) -> None:
    """A run expected +10.9 points and a promotion with 98%, from sixteen trainings: the judge found +0.9."""
    rng, start = np.random.default_rng(seed), opened().model_copy(update={"offers": ()})
    noisy = lambda recipe, n: worth(recipe) + 0.03 * float(rng.standard_normal())  # noqa: E731
    done, _ = drive(PooledAgent(0), 16, score=noisy, start=start)
    asked = PromotionThreshold(gain=0.05, se=0.01)
    b = start.model_copy(update={"probes": tuple(done), "promotion_threshold": asked})
    told = []
    for prior_sd in (0.05, 0.3):  # the wider, the more lucky trainings are believed
        (iv,) = PooledAgent(0, PooledOptions(prior_sd=prior_sd)).propose(b, FakeTools()).interventions
        assert iv.forecast is not None and iv.forecast.promote is not None
        told.append(iv.forecast)
    assert told[1].mean > told[0].mean > 0.05, "what decides how many seeds a branch gets rests on the hopes"
    assert told[0].promote == pytest.approx(told[1].promote, abs=0.03)


def test_what_was_judged_is_not_proposed_again() -> None:
    """A run on repositories proposed its second, rejected branch in ten further rounds."""
    agent = PooledAgent(0)
    done, _ = drive(agent, 24)
    b = opened().model_copy(update={"probes": tuple(done)})
    seen: list[str] = []
    for _ in range(40):
        proposed = agent.propose(b, FakeTools())
        if not proposed.interventions:
            break
        iv = proposed.interventions[0]
        child = START.with_factor(iv.factor, iv.new)
        assert child.hash not in seen
        seen.append(child.hash)
        judged = record(f"b{len(seen)}", child, intervention=iv, kind="reject", scores=(worth(child),) * 3)
        b = b.model_copy(update={"branches": (*b.branches, judged), "round": b.round + 1})
    assert 2 <= len(seen) < 40
    assert "helps with a probability of 65%" in proposed.stop


@pytest.mark.parametrize("name", CONTROLS)
def test_an_arm_uses_up_its_trainings_and_proposes_nothing(name: str) -> None:
    agent = make_agent(name, 3)
    assert isinstance(agent, ControlArm) and isinstance(agent, Searcher) and agent.name == name
    done, choice = drive(agent, 14, workers=3)
    assert len(done) == 14
    assert choice.score == pytest.approx(max([0.5, *(p.score for p in done if p.score is not None)]))
    proposed = agent.propose(opened(), FakeTools())
    assert proposed.interventions == () and "bench.compare" in proposed.stop


@pytest.mark.parametrize("name", CONTROLS)
def test_an_arm_keeps_no_state_so_that_a_killed_run_goes_on_the_same(name: str) -> None:
    done, choice = drive(make_agent(name, 7), 16)
    begun = tuple(done[:12])
    b = opened().model_copy(update={"probes": begun, "probes_left": 4})
    again = make_agent(name, 7).search(b, FakeTools())
    assert again.probes[0].changes == done[12].changes
    assert make_agent(name, 8).search(b, FakeTools()).probes[0].changes != done[12].changes or name == "best_of_n"
    assert choice is not None


def test_greedy_climbs_one_step_at_a_time_and_never_lets_go_of_a_gain() -> None:
    done, choice = drive(make_agent("greedy", 1), 60)
    kept: dict[str, Any] = {}
    best = 0.5
    for p in done:
        fields = set(diff(START.with_changes(kept), p.recipe))
        assert len(fields) <= 3, "one factor, a composite one at most"
        if p.score is not None and p.score > best:
            kept, best = dict(p.changes), p.score
    assert choice.changes == kept and {"temperature", "group_size"} <= set(diff(START, START.with_changes(kept)))
    assert choice.score == pytest.approx(0.64, abs=0.005)


def test_greedy_keeps_a_lucky_score_as_well() -> None:
    """One seed and any gain: it is the arm's very flaw."""
    _, choice = drive(make_agent("greedy", 1), 20, score=lambda r, n: 0.5 + 0.05 * (n == 5))
    assert choice.score == pytest.approx(0.55) and choice.changes


def test_random_recipes_change_one_to_six_factors_and_never_repeat() -> None:
    done, choice = drive(make_agent("random_recipes", 2), 80)
    sizes = {len(p.changes) for p in done}
    assert sizes == {1, 2, 3, 4, 5, 6}
    assert len({p.recipe.hash for p in done}) == 80
    assert choice.score == max(p.score or 0 for p in done)
    half = [set(p.changes) for p in done]
    assert len(set().union(*half[:40])) > 15, "all factors alike, not those that scored"


def test_best_of_n_trains_the_start_and_reports_the_luckiest_seed() -> None:
    done, choice = drive(make_agent("best_of_n", 0), 9, score=lambda r, n: 0.5 + 0.25 * (n == 4))
    assert all(p.changes == {} and p.recipe == START for p in done)
    assert choice == SearchChoice(changes={}, score=0.75)


def test_tpe_comes_back_to_what_scored_well() -> None:
    def share(trainings: Sequence[ProbeRecord]) -> float:
        return sum("temperature" in p.changes for p in trainings) / len(trainings)

    def score(r: Recipe, n: int) -> float:
        return 0.4 + 0.2 * (r.temperature != START.temperature) - 0.002 * len(diff(START, r))

    tpe = [drive(make_agent("tpe", s), 40, score=score)[0] for s in range(3)]
    chance = [drive(make_agent("random_recipes", s), 40, score=score)[0] for s in range(3)]
    late = [p for done in tpe for p in done[20:]]
    assert share(late) > 0.6 > 2 * share([p for done in chance for p in done[20:]])
    assert all(p.recipe == START.with_changes(p.changes) for p in late)


def test_tpe_without_optuna_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # in that module alone: patched in importlib.util, a module first imported meanwhile would keep the stub for good
    monkeypatch.setattr("bench.compare.agents.tpe.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs Optuna, .* run: pip install -e '.*\[tpe\]'"):
        make_agent("tpe")


class Shut(FakeTools):
    """Tools that nobody may touch."""

    def backtest(self, intervention: Any) -> Any:
        raise AssertionError("a backtest shows more than scores")

    def rollouts(self, branch: str, limit: int = 100) -> Any:
        raise AssertionError("rollouts show more than scores")


def test_score_only_answers_the_same_whatever_the_harness_says() -> None:
    agent = make_agent("score_only", 5)
    assert isinstance(agent, ScoreOnly)
    plain = opened().model_copy(update={"probes_left": 4, "changes": 3})
    loud = plain.model_copy(update={"health": health({"dead_groups": 0.9}, frac_reward_zero_std=0.8, entropy=0.1)})
    one, other = agent.search(plain, Shut()), agent.search(loud, Shut())
    assert one == other and one.probes
    several = {"notes": {"workers": "8"}, "probes_left": 8}
    sighted = [make_agent("statistical", 5).search(b.model_copy(update=several), FakeTools()) for b in (plain, loud)]
    assert sighted[0] != sighted[1], "the default agent does look"
    assert agent.propose(plain, Shut()).agent == "score_only"


def test_a_failed_training_is_never_chosen() -> None:
    b = opened()
    failed = ProbeRecord(
        probe="p1", round=1, incumbent="b0", changes={"lr": 1e-4}, recipe=START.with_factor("lr", 1e-4), seed=1,
        failed="collapse",
    )  # fmt: skip
    for name in CONTROLS:
        plan = make_agent(name).search(b.model_copy(update={"probes": (failed,), "probes_left": 1}), FakeTools())
        assert plan.choice == SearchChoice(changes={}, score=0.5)


def test_a_run_without_any_noise_proposes_all_the_same() -> None:
    agent = PooledAgent(0)
    done, _ = drive(agent, 20)
    b = opened().model_copy(update={"probes": tuple(done)})
    none = PromotionThreshold(gain=0.01, se=0.0)
    assert agent.propose(b.model_copy(update={"provable": none}), FakeTools()).interventions


def test_the_effects_of_a_search_are_told_in_words_and_one_training_in_the_singular() -> None:
    """A report showed `schedule = {'kind': 'linear', 'warmup': 5}`, measured `in 1 trainings`."""
    value = {"kind": "linear", "warmup": 5}
    effect = SimpleNamespace(factor="schedule", value=value, mean=0.019, sd=0.029, trainings=1)
    model = SimpleNamespace(trainings=7, noise_sd=0.031, effects=lambda: [effect])
    search: Any = SimpleNamespace(situation=SimpleNamespace(symptoms={}), model=model)
    told = reasoning(search, None).splitlines()[-1]
    assert told == "- schedule = {kind=linear, warmup=5}: +1.9 +/- 2.9 points, in 1 training"
