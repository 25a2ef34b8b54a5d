"""`judge.real_comparisons`: A/A splits of a run's own trials."""

from __future__ import annotations

from evotrainer.judge import JudgeConfig
from evotrainer.judge.real_comparisons import real_comparisons
from evotrainer.judge.simulate import trial
from tests.judge.scored_trials import nothing, repeats


def test_real_splits_are_disjoint_and_rarely_promoted() -> None:
    found = real_comparisons({"b0": repeats(6), "b1": repeats(5, name="b1"), "b2": repeats(3)}, JudgeConfig())
    # 6 of 3 against 3: 10 splits; 5 of 2 against 2: 15; both directions each
    assert found.comparisons == 2 * (10 + 15) and found.independent == 2
    assert found.left_out == {"b2": 3} and found.groups == {"b0": 6, "b1": 5}
    assert found.promoted.hits == 0 and found.promoted_plain.runs == 50
    drawn = real_comparisons({"b0": repeats(12)}, JudgeConfig(), most=20)
    assert drawn.comparisons == 40 and drawn == real_comparisons({"b0": repeats(12)}, JudgeConfig(), most=20)
    assert nothing().comparisons == 0


def test_two_recipes_called_one_are_found_out() -> None:
    mixed = repeats(3) + [
        trial("b0", t.seed + 3, {k: min(1.0, v + 0.4) for k, v in t.scores[0].per_task.items()}, 2) for t in repeats(3)
    ]
    assert real_comparisons({"b0": mixed}, JudgeConfig()).promoted_plain.hits > 0
