"""`reasoning-gym:NAME`: every data set, scored as its own scorer does, and no answer of a policy is run as Python."""

from __future__ import annotations

import time
from typing import Any

import pytest
from bench.envs.reasoning_gym import compare

from evotrainer.envs import open_environment
from evotrainer.envs.base import SPLITS
from evotrainer.envs.reasoning_gym import DATA, PYTHON, SYMPY, data_set, harmless, load, own_score, trained_on
from evotrainer.errors import TaskSetError
from evotrainer.testing import check_environment

SLOW = {"arc_agi", "codeio", "figlet_font", "futoshiki", "intermediate_integration", "knight_swap", "quantum_lock",
        "rubiks_cube", "sokoban", "zebra_puzzles"}  # fmt: skip
"""Half a second an item, or a file of megabytes; `python -m bench.envs.reasoning_gym` has them all."""
SMALL = {"train": 6, "search": 4, "gate": 4, "cert": 4}


def opened(name: str, **more: Any) -> Any:
    return open_environment({"name": f"reasoning-gym:{name}", **SMALL, **more})


def test_scores_of_all_data_sets_are_those_of_their_scorers() -> None:
    rows = [compare(n, 4) for n in sorted(set(load().factory.DATASETS) - set(DATA) - SLOW)]
    assert len(rows) > 90 and not [r.name for r in rows if r.differ]
    assert sum(r.solved == r.items for r in rows) > 80, "an item's own answer solves it"


def test_an_environment_of_a_data_set_is_one_like_any_other() -> None:
    check_environment(opened("chain_sum"))
    env = opened("chain_sum", train=40, options={"max_terms": 3})
    questions = {s: [t.prompt for t in env.tasks(s)] for s in SPLITS}
    assert all(trained_on(q) == (s == "train") for s, qs in questions.items() for q in qs)
    flat = [q for qs in questions.values() for q in qs]
    assert len(set(flat)) == len(flat)
    again = opened("chain_sum", train=40, options={"max_terms": 3})
    assert [t.prompt for t in again.tasks("gate")] == questions["gate"]
    again.redraw("7")
    redrawn = [t.prompt for t in again.tasks("gate")]
    assert not set(redrawn) & {*questions["train"], *questions["search"], *questions["gate"]}
    assert env.demonstrations(1, 0)[0][1] == f"<answer>{env.tasks('train')[0].data['entry']['answer']}</answer>"


def test_difficulty_is_a_knob_and_keeps_training_apart_from_examination() -> None:
    env = opened("chain_sum", train=30)
    assert env.knobs["difficulty"][:3] == ("own", 0, 1)
    easy, hard = ([env.reset(t, {"difficulty": level}).task.prompt for t in env.tasks("train")] for level in (0, 8))
    assert max(map(len, easy)) < min(map(len, hard))
    assert all(map(trained_on, easy + hard))
    task = env.tasks("gate")[0]
    e = env.reset(task, {"difficulty": 8})
    assert e.task.id == task.id and not trained_on(e.task.prompt)
    env.step([e], [f"<answer>{e.task.data['entry']['answer']}</answer>"], ["stop"])
    assert env.score([e])[0].outcome == "correct"


@pytest.mark.parametrize("name", sorted(PYTHON | SYMPY))
@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('touch {}')",
        "open('{}', 'w')",
        "[].append.__self__.__class__.__base__.__subclasses__()",
        "exec(chr(112))",
        "(lambda: open('{}', 'w'))()",
        "exec('x')!",
        "9**9**9**9",
        "((9**99)**99)**99",
        "[0]*10**10",
        "10**999999999",
        "1e999999999",
        "print(1)",
        "max('a')",
        "f'{{open(0)}}'",
    ],
)
def test_an_answer_is_never_run(name: str, attack: str, tmp_path: Any) -> None:
    text = attack.format(tmp_path / "made")
    begun = time.monotonic()
    data = data_set(name, 0, 4, {})
    assert own_score(data, name, text, data[0]) <= 0.1
    assert not (tmp_path / "made").exists() and time.monotonic() - begun < 5
    assert not harmless(text, name) or name in PYTHON


def test_plain_arithmetic_is_scored() -> None:
    for text in ("3*x**2 + sin(x)/2 - C", "(x + 1)**3*(x - 2)", "(8-4)*6", "exp(-x)*log(x + 1)"):
        assert harmless(text, "simple_integration"), text
    assert harmless("['a', 'b']", "string_insertion") and harmless("0 1\n1 0", "binary_matrix")


@pytest.mark.timeout(0)  # its alarm is the one that a scorer is given
def test_a_scorer_without_an_end_is_a_fault_and_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evotrainer.envs.reasoning_gym.SCORE_S", 0.1)
    env = opened("gcd")
    task = env.tasks("search")[0]
    e = env.reset(task, {})
    env.step([e], ["<answer>4</answer>"], ["stop"])
    env.score([e])
    monkeypatch.setattr(type(env._scorer), "score_answer", lambda *_: time.sleep(5))
    (score,) = env.score([e])
    assert score.outcome == "unknown" and score.error_kind == "scorer" and set(score.components.values()) == {None}


@pytest.mark.parametrize(
    ("name", "more", "says"),
    [
        ("chain_sums", {}, "did you mean chain_sum?"),
        ("composite", {}, "it is made of other data sets"),
        ("chain_sum", {"options": {"terms": 3}}, "there are: min_terms, max_terms"),
        ("chain_sum", {"options": {"min_terms": 5, "max_terms": 2}}, "environment.options"),
        ("chain_sum", {"options": {"max_terms": 2, "max_digits": 1, "min_digits": 1}, "train": 900}, "set environment"),
        ("chain_sum", {"difficulty": 3}, "unknown name"),
    ],
)
def test_what_cannot_be_is_refused(name: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(TaskSetError, match=says):
        opened(name, **more).tasks("train")
