"""`evotrainer backtest` on anybody's rollouts: what it prints, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotrainer.cli import app
from evotrainer.cli.backtest import split_items
from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.records.recipe import Recipe
from evotrainer.studies.backtest import as_intervention

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """20 groups of 6, plain JSONL: `tests` is fooled by every third wrong answer, `truth` is not; 5 groups all fail."""
    file = tmp_path / "log.jsonl"
    with file.open("w") as f:
        for t in range(20):
            for k in range(6):
                right = t < 15 and k < 2
                tests = float(right or (t < 15 and k == 2))
                f.write(
                    json.dumps(
                        {
                            "task": f"t{t}",
                            "group": f"g{t}",
                            "text": f"answer {t} {k} " + ("cheat" if k == 2 else "work"),
                            "reward": tests,
                            "components": {"tests": tests, "truth": float(right), "length": 0.1 * k},
                            "outcome": "correct" if right else "incorrect",
                            "detail": {"cheat": k == 2},
                        }
                    )
                    + "\n"
                )
    return file


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """(exit code, output) of `evotrainer backtest ...`; errors as main would print them."""
    monkeypatch.setenv("EVOTRAINER_CACHE", str(tmp_path / "cache"))

    def run(*args: Any) -> tuple[int, str]:
        try:
            code = app(["backtest", *map(str, args)], standalone_mode=False) or 0
        except EvoTrainerError as e:
            return e.exit_code, str(e)
        return int(code), capsys.readouterr().out

    return run


def test_where_the_truth_is_what_is_paid_nothing_is_said_to_stand_for_it(rows: Path, say: Say) -> None:
    _, before = say(rows, "--paid", "tests=1", "reward_scaling=none")
    assert "1: what paying for the truth gives)" in before
    truth = [json.loads(line) for line in rows.read_text().splitlines()]
    rows.write_text("".join(json.dumps(r | {"reward": r["components"]["truth"]}) + "\n" for r in truth))
    _, told = say(rows, "--paid", "truth=2", "reward_scaling=none")
    assert "(0: no change; the truth itself is paid already, and 1 would be as much again)" in told
    assert "what paying for the truth gives" not in told


def test_rewards_that_are_no_section_are_refused_in_a_line(rows: Path, say: Say) -> None:
    code, said = say(rows, "--paid", "tests=1", 'rewards={"truth":1}')
    assert code == 2 and "rewards: must be a section of names and values, e.g. {name = 1}" in said


def test_a_reward_change_says_what_it_would_do(rows: Path, say: Say) -> None:
    code, out = say(rows, "rewards.truth=1", "rewards.tests=0", "--paid", "tests=1")
    assert code == 0
    assert "SUPPORTS" in out and "zero-variance groups" in out and "25.0%" in out
    assert "forecast    +" in out and "wrongly ranked pairs" in out


def test_the_same_as_json_with_the_numbers_of_the_table(rows: Path, say: Say) -> None:
    code, out = say(rows, "rewards.truth=1", "rewards.tests=0", "--paid", "tests=1", "--json")
    (r,) = json.loads(out)
    m = r["backtest"]["numbers"]
    assert code == 0 and r["groups"] == 20 and r["tasks"] == 20
    assert m["dead_before"] == m["dead_after"] == 0.25
    assert m["misranked_before"] == pytest.approx(0.5 / 4) and m["misranked_after"] == 0
    assert m["coverage.truth"] == pytest.approx(30 / 120)
    assert r["intervention"]["new"] == {"truth": 1.0}


def test_what_is_paid_is_inferred_where_it_can_be(rows: Path, say: Say) -> None:
    code, out = say(rows, "rewards.truth=1", "--json")
    (r,) = json.loads(out)
    assert code == 0 and r["assumed"]["paid"] == {"tests": 1.0}


def test_a_curriculum_names_what_is_lost(rows: Path, say: Say) -> None:
    code, out = say(rows, "curriculum.kind=pass_rate_band", "curriculum.low=0.1", "curriculum.high=0.9")
    assert code == 0
    assert "5 of 20 tasks, 0.0% of correct rollouts" in out
    assert "t15" in out and "solved 0%" in out


def test_a_contradicted_change_can_fail_a_build(rows: Path, say: Say) -> None:
    change = ("rewards.length=5", "--paid", "tests=1")
    assert say(rows, *change)[0] == 0
    assert say(rows, *change, "--fail-on", "contradicts")[0] == 10
    assert say(rows, "rewards.truth=1", "--paid", "tests=1", "--fail-on", "contradicts")[0] == 0


def test_an_intervention_file_and_a_prediction(rows: Path, say: Say, tmp_path: Path) -> None:
    file = tmp_path / "iv.toml"
    file.write_text(
        'factor = "group_filter"\n[new]\nkind = "zero_variance"\n'
        '[prediction]\nmetric = "frac_reward_zero_std"\ndirection = "down"\nsize = 0.9\n'
    )
    code, out = say(rows, "--intervention", file)
    assert code == 0 and "CONTRADICTS" in out and "no room" in out
    code, out = say(rows, "--intervention", file, "--predict", "frac_reward_zero_std down 0.2")
    assert "SUPPORTS" in out and "the replay reaches it" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["rewards.style=1", "--paid", "tests=1"], "no component style is stored; there are: length, tests, truth"),
        (["rewards.truth=1", "lr=0.1"], "one factor at a time"),
        (["rewards.truth=1", "--paid", "style=1"], "no rollout has the reward component style"),
        (["stesp=1"], "unknown name, did you mean steps"),
        ([], "say what to replay"),
        (["rewards.truth=1", "--fail-on", "rain"], "--fail-on rain"),
        (["rewards.truth=1", "--predict", "dead lower"], "METRIC up|down SIZE"),
    ],
)
def test_what_cannot_be_done_is_told_with_the_remedy(rows: Path, say: Say, args: list[str], said: str) -> None:
    code, out = say(rows, *args)
    assert code == 2 and said in out


def test_a_path_that_is_not_there(say: Say) -> None:
    code, out = say("nowhere", "rewards.a=1")
    assert code == 2 and "there is no nowhere" in out
    assert say("rewards.a=1")[0] == 2


def test_a_file_whose_name_has_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    odd = tmp_path / "lr=1.jsonl"
    odd.write_text("{}\n")
    assert split_items([str(odd), "lr=2"]) == ([odd], ["lr=2"])


def test_a_short_form_names_the_kind_of_a_factor() -> None:
    iv, note = as_intervention(Recipe(rewards={"a": 1.0}), ["group_filter=snr_top_p", "group_filter.keep=0.8"])
    assert iv.new["kind"] == "snr_top_p" and iv.new["keep"] == 0.8 and note == ""
    with pytest.raises(ConfigError, match="group_filter.kind: must be none, zero_variance, ema_std or snr_top_p"):
        as_intervention(Recipe(), ["group_filter=foo"])
    iv, note = as_intervention(Recipe(rewards={"a": 1.0}), ["recipe.rewards.b=1", "rewards.c=0.5"])
    assert iv.new == {"a": 1.0, "b": 1.0, "c": 0.5} and "2 moves" in note
    with pytest.raises(ConfigError, match="nothing would change"):
        as_intervention(Recipe(rewards={"a": 1.0}), ["rewards.a=1"])
