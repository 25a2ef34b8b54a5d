"""Which components are the outcome, in every kind of environment, and what a task file may say of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs import open_environment, pay_terms
from evotrainer.envs.outcome import check_needed, outcome_components
from evotrainer.envs.simple import TextEnv
from evotrainer.errors import TaskSetError
from tests.trainers.reverse_env import ReverseEnv

OWN = '''
from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv

def make(size=2):
    tasks = {s: [Task(f"{s}-{i}", s, f"{s} {i}") for i in range(size)] for s in ("train", "search", "gate", "cert")}

    def longer(task, completion):
        """1 when there is any text."""
        return float(bool(completion))

    def short(task, completion):
        """1 when there is little text."""
        return float(len(completion) < 9)

    return TextEnv("own", tasks, {"longer": longer, "short": short}, "longer")

def graded(completions, **columns):
    return [0.0 for _ in completions]

def styled(completions, **columns):
    return [1.0 for _ in completions]
'''
SHIPPED = {
    "code": ("hidden", "hidden_frac", "heldout", "heldout_frac"),
    "math": ("correct", "answer_last", "answer_anywhere"),
    "swe": ("hidden", "f2p_frac", "p2p_frac", "progress"),
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{i}"}}\n' for i in range(40)))
    return tmp_path / "own.py"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_domain_names_its_outcome_and_offers_something_else(name: str) -> None:
    if name == "math":
        pytest.importorskip("reasoning_gym")
    env = open_environment({"name": name})
    try:
        assert set(outcome_components(env)) == set(SHIPPED[name])
        assert set(env.components) - set(SHIPPED[name])
    finally:
        env.close()


def test_what_reads_sealed_tests_is_of_the_outcome_and_nothing_else_is() -> None:
    """A program's sealed tests change hands: exactly the outcome's components notice."""
    from evotrainer.envs.base import Task

    visible = [["1 2\n", "3"]]
    data = {"form": "stdin", "visible": visible, "spec": "print the sum"}
    answers = ({"hidden": [["5\n", right]], "heldout": [["7\n", other]]} for right, other in (("5", "7"), ("6", "8")))
    env = open_environment({"name": "code", "train": 1})
    try:
        tasks = [Task(f"t{i}", "train", "p", {**data, **sealed}) for i, sealed in enumerate(answers)]
        episodes = [env.reset(t, {}) for t in tasks]
        env.step(episodes, ["print(sum(map(int, input().split())))"] * 2, ["stop"] * 2)
        a, b = (s.components for s in env.score(episodes))
        assert {c for c in env.components if a[c] != b[c]} == set(outcome_components(env))
    finally:
        env.close()


def test_a_users_environment_names_the_truth(own: Path) -> None:
    env = open_environment({"name": f"python:{own}:make", "size": 3, "payable": ["longer"]})
    assert isinstance(env, TextEnv) and len(env.tasks("train")) == 3, "`payable` is no option of the factory"
    told = pay_terms(env, {"payable": ["longer"]})
    assert [s["name"] for s in told.pop("slots")] == ["system", "prompt"]
    assert told == {"outcome": ["longer"], "payable": ["longer"], "offers": [], "demonstrations": False}
    assert pay_terms(open_environment({"name": "math"}), {})["demonstrations"]


@pytest.mark.parametrize(("more", "outcome"), [({}, "graded"), ({"truth": "styled"}, "styled")])
def test_trls_functions_name_the_truth(own: Path, more: Mapping[str, Any], outcome: str) -> None:
    rewards = {
        "name": f"trl-rewards:{own}:graded",
        "rewards": [f"{own}:styled"],
        "source": str(own.parent / "rows.jsonl"),
    }
    assert outcome_components(open_environment({**rewards, **more})) == (outcome,)


def test_an_environment_that_says_nothing_has_the_true_side_of_its_proxy() -> None:
    env = ReverseEnv()
    assert outcome_components(env) == (), "neither an outcome nor a proxy: nothing is known"
    env.proxy = ("digits", "exact")  # type: ignore[assignment]
    assert outcome_components(env) == ("exact",)
    env.outcome_components = ("digits", "exact")  # type: ignore[attr-defined]
    assert outcome_components(env) == ("exact", "digits"), "what it says counts, in the order of its components"
    env.outcome_components = ("exactly",)  # type: ignore[attr-defined]
    with pytest.raises(TaskSetError, match="declares 'exactly' as its outcome, which is none of its components: exact"):
        outcome_components(env)


@pytest.mark.parametrize(
    ("payable", "said"),
    [
        (["longr"], "environment.payable: own has no reward component 'longr'; did you mean longer?"),
        (["zzz"], "environment.payable: own has no reward component 'zzz'; it has: longer, short"),
        ("longer", r'environment.payable is a list of reward components, e.g. \["correct"\], not \'longer\''),
        ([1], "environment.payable is a list"),
    ],
)
def test_a_bad_payable_is_one_line_with_cause_and_remedy(own: Path, payable: Any, said: str) -> None:
    with pytest.raises(TaskSetError, match=said) as e:
        open_environment({"name": f"python:{own}:make", "payable": payable})
    assert "\n" not in str(e.value)


def test_what_is_no_outcome_needs_no_leave_and_a_run_that_gave_it_goes_on(own: Path) -> None:
    env = open_environment({"name": f"python:{own}:make", "payable": ["short"]})
    with pytest.raises(TaskSetError, match=r"payable: short is no outcome of own \(that is longer\), so"):
        check_needed(env, {"payable": ["short"]})
    check_needed(env, {"payable": ["longer"]})
