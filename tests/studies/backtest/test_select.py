"""Best of n by a score: against a count by hand, and what it refuses."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotrainer.errors import ConfigError
from evotrainer.studies.backtest import select, subjects
from evotrainer.studies.backtest.select import Selection, best_of, is_selection, selection_lines
from tests.cli.test_backtest import Say, say

__all__ = ["say"]


def log(path: Path, tasks: int = 20, size: int = 4, **fields: Any) -> Path:
    rng = random.Random(3)
    rows = []
    for t in range(tasks):
        for k in range(size):
            right = rng.random() < 0.4
            shown = float(right or rng.random() < 0.3)
            own = {"task": f"t{t}", "text": f"answer {t} {k}", "reward": shown, "correct": right}
            parts = {"visible": shown, "noise": rng.random()}
            rows.append(own | {"components": parts, "tokens": 5 + k} | fields)
    path.write_text("".join(json.dumps({k: v for k, v in r.items() if v is not None}) + "\n" for r in rows))
    return path


def picked(path: Path, setting: str, tmp_path: Path) -> Selection:
    (s,) = subjects([path], cache=tmp_path / "cache")
    return select(s, setting)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_best_of_n_is_the_mean_over_all_draws(n: int) -> None:
    score, value = np.array([0.1, 0.7, 0.7, 0.2, 0.7]), np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    total = []
    for drawn in itertools.combinations(range(5), n):
        top = max(score[list(drawn)])
        total.append(np.mean([value[i] for i in drawn if score[i] == top]))
    assert best_of(score, value, n) == pytest.approx(np.mean(total))


def test_the_pick_lies_between_a_random_one_and_the_best(tmp_path: Path) -> None:
    path = log(tmp_path / "r.jsonl")
    s = picked(path, "select=visible", tmp_path)
    rows = [json.loads(x) for x in path.read_text().splitlines()]
    groups = [rows[i : i + 4] for i in range(0, 80, 4)]
    by_hand = []
    for g in groups:
        top = max(r["components"]["visible"] for r in g)
        by_hand.append(np.mean([r["correct"] for r in g if r["components"]["visible"] == top]))
    assert s.measure == "outcome" and len(s.groups) == 20
    assert s.picked == pytest.approx(np.mean(by_hand))
    assert s.oracle == pytest.approx(np.mean([any(r["correct"] for r in g) for g in groups]))
    assert s.mean == pytest.approx(np.mean([r["correct"] for r in rows]))
    assert s.mean < s.picked < s.oracle and s.low is not None and 0 < s.low < s.gain and s.share is not None
    assert [(n, g) for n, g, _, _ in s.curve] == [(1, 20), (2, 20), (4, 20)]
    assert s.curve[0][2] == pytest.approx(s.mean) and s.curve[-1][2:] == pytest.approx((s.picked, s.oracle))
    noise = picked(path, "select=noise", tmp_path)
    assert noise.low is not None and noise.high is not None and noise.low < 0 < noise.high
    short, long = (picked(path, f"select={x}", tmp_path) for x in ("-tokens", "tokens"))
    assert [g.picked for g in short.groups] == [float(g[0]["correct"]) for g in groups]
    assert [g.picked for g in long.groups] == [float(g[3]["correct"]) for g in groups]
    assert "best by visible, 20 groups, measured by outcome" in selection_lines(s)[0]


def test_without_outcomes_the_reward_measures(tmp_path: Path) -> None:
    path = log(tmp_path / "r.jsonl", correct=None)
    assert picked(path, "select=noise", tmp_path).measure == "reward"
    with pytest.raises(ConfigError, match="it picks itself; select by a component"):
        picked(path, "select=reward", tmp_path)


def test_one_task_has_no_interval(tmp_path: Path) -> None:
    s = picked(log(tmp_path / "r.jsonl", tasks=1), "select=visible", tmp_path)
    assert s.low is None and "one task, no interval" in "\n".join(selection_lines(s))


@pytest.mark.parametrize(
    ("fields", "setting", "cause"),
    [
        ({}, "select=nope", "no component nope is stored; select by one of: noise, visible, reward, tokens"),
        ({}, "select=", r"no component \(none\) is stored"),
        ({}, "select=entropy", "no rollout has a entropy; select by a component that is recorded"),
        ({"size": 1}, "select=visible", "no group has two rollouts with visible and outcome; picking needs several"),
        ({"reward": None, "correct": None, "outcome": "unknown"}, "select=visible", "nothing to measure by"),
    ],
)
def test_bad_input(tmp_path: Path, fields: dict[str, Any], setting: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause) as e:
        picked(log(tmp_path / "r.jsonl", **fields), setting, tmp_path)
    assert "\n" not in str(e.value)


def test_the_command(tmp_path: Path, say: Say) -> None:
    path = log(tmp_path / "r.jsonl")
    code, out = say(path, "select=visible", "select=noise")
    assert code == 0 and out.count("best of n") == 2 and "groups in which the pick is not the best" in out
    (first, second) = json.loads(say(path, "select=visible", "select=noise", "--json")[1])
    assert (first["select"], second["select"], len(first["groups"])) == ("visible", "noise", 20)
    assert "give it without other settings" in say(path, "select=visible", "rewards.noise=1")[1]
    assert "give it without --intervention" in say(path, "select=visible", "--predict", "accuracy up 0.1")[1]
    assert is_selection(["select=a"]) and not is_selection(["lr=1"])


def test_policies_of_one_file_are_picked_from_apart(tmp_path: Path) -> None:
    log(tmp_path / "a.jsonl", policy="base")
    log(tmp_path / "b.jsonl", policy="tuned")
    rows = [(tmp_path / n).read_text().splitlines() for n in ("a.jsonl", "b.jsonl")]
    both = tmp_path / "both.jsonl"
    both.write_text("".join(f"{a}\n{b}\n" for a, b in zip(*rows, strict=True)))
    found = subjects([both], cache=tmp_path / "cache")
    assert [s.name for s in found] == ["both.jsonl base", "both.jsonl tuned"]
    assert [len(select(s, "select=visible").groups) for s in found] == [20, 20]
