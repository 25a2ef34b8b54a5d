"""Whatever written code answers, at every place where it may: a number, or a refusal with its cause, and never the end
of who asked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from evotrainer.errors import ConfigError, EvoTrainerError, TrainerError
from evotrainer.harness import Batch, HarnessContext
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.authored import flags
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.harness.whatif.copies import within
from evotrainer.harness.whatif.written import scored
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.records.untrusted_values import OpaqueValue, in_words, number, received
from evotrainer.records.written import about
from evotrainer.sandbox.detector_runner import SandboxRunner
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.trainers.hooks import StepHooks
from evotrainer.verify.written import _ReplayedHooks
from tests.harness_inputs import change, rollout
from tests.tables import table

_DATA = table("hostile_answers")
HOSTILE: dict[str, str] = _DATA["answers"]
"""Expressions, which use the helpers."""
HELPERS: str = _DATA["helpers"]["text"]

SAFE = (type(None), bool, int, float, str, OpaqueValue)


def source(function: str, arguments: str, expression: str) -> str:
    return f"{HELPERS}\n\ndef {function}({arguments}):\n    return {expression}\n"


@pytest.fixture(scope="module")
def runner() -> Iterator[RewardRunner]:
    with closing(RewardRunner(accept_tier_e=True)) as found:
        yield found


@pytest.fixture(scope="module")
def rollouts() -> list[Rollout]:
    out = []
    for t in range(8):
        for k in range(8):
            parts: dict[str, Any] = {
                "components": {"visible": float(k % 2)},
                "advantage": 0.5,
                "step": 1,
                "split": "train",
            }
            out.append(rollout(f"t{t}", k, text=f"print({k})", reward=float(k % 2), correct=k < 3, **parts))
    return out


def leaves(value: Any) -> Iterator[Any]:
    if type(value) is list:
        for v in value:
            yield from leaves(v)
    else:
        yield value


PARENT = Recipe(rewards={"visible": 1.0})
CONTEXT: Mapping[str, Any] = {"unpayable": ("hidden",)}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_of_written_code_is_a_refusal_wherever_it_is_asked(
    name: str, runner: RewardRunner, rollouts: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    expression = HOSTILE[name]
    context = HarnessContext(scorer=runner, hooks=runner, **CONTEXT)
    # a component: asked for values, checked, replayed
    reward = source("reward", "rollout", expression)
    said = runner(reward, [{}, {}])
    assert said.values == [None, None] and set(said.failed) == {0, 1}
    paid = {"rewards": {"visible": 1.0, "mine": 1.0}, "written": {"mine": reward}}
    sources = {
        "advantages": source("advantages", "group", expression),
        "weights": source("weights", "rollouts", expression),
        "select": source("select", "tasks, history", expression),
    }
    changes = [change("written_reward", paid), *(change("hooks", {"mine": s}) for s in sources.values())]
    for each in changes:
        b = backtest(each, PARENT, rollouts, context)
        assert b.verdict == "contradicts" and b.label == "probe_failed", b
        json.dumps(b.model_dump(mode="json"), allow_nan=False, ensure_ascii=False).encode()
    # a training's hooks end it with one line; verify names the difference
    groups = [rollouts[:8], rollouts[8:16]]
    for entry, text in sources.items():
        recipe = PARENT.with_factor("hooks", {"mine": text})
        hooks = StepHooks(recipe, runner)
        asked = {
            "advantages": lambda h=hooks: h.advantages(groups, [[0.0] * 8] * 2, 1),
            "weights": lambda h=hooks: h.weights(groups, 1),
            "select": lambda h=hooks: h.select([{}] * 9, {"n": 3, "taken": [], "step": 1}),
        }
        with pytest.raises(TrainerError, match=f"hook mine@.*{entry} in step 1") as ended:
            asked[entry]()
        str(ended.value).encode()
        if entry != "select":
            assert _ReplayedHooks(recipe, 1, (), runner).differences([list(g) for g in groups])
    # a detector: any other answer than booleans is its fault
    monkeypatch.setattr("evotrainer.sandbox.Sandbox.open", lambda **_: _Open(runner))
    spec = DetectorSpec(name="mine", form="python", source=source("flag", "rollouts", expression))
    with pytest.raises(ConfigError):
        flags(spec, FeatureView(rollouts[:8]), SandboxRunner(accept_tier_e=True))


class _Open:
    """The sandbox that is open already, left open."""

    def __init__(self, runner: RewardRunner) -> None:
        self.run = runner._box.run  # type: ignore[union-attr]

    def close(self) -> None:
        return None


@pytest.mark.parametrize("name", HOSTILE)
def test_what_arrives_is_plain_and_nothing_done_to_it_raises(name: str, runner: RewardRunner) -> None:
    (value,) = runner.call(source("f", "", HOSTILE[name]), "f", [()]).values
    for v in leaves(value):
        assert type(v) in SAFE
        assert number(v) is None or math.isfinite(float(v))
        assert (v == v or math.isnan(v)) and isinstance(hash(v), int)
        f"{v} {v!r} {in_words(v)}".encode()


def test_a_foreign_value_is_a_text_that_equals_only_itself() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

        __eq__ = __float__ = __len__ = __repr__  # type: ignore[assignment]
        __hash__ = __repr__  # type: ignore[assignment]

    sizes = (10**5000, -(10**400), 1 << 63, (1,), {1: 2}, b"x", Odd(), 1j, Ellipsis, Decimal("sNaN"), Fraction(1, 3))
    for value in sizes:
        got = received([value, [value]])
        assert got == received([value, [value]]) and number(got[0]) is None and number(value) is None
        f"{got} {in_words(value)}".encode()


def test_an_error_within_a_check_is_held_against_the_code_and_not_the_end(rollouts: list[Rollout]) -> None:
    def broken(source: str, evidence: object) -> Any:
        raise ZeroDivisionError("\ud800")

    new = PARENT.with_factor(
        "written_reward", {"rewards": {"mine": 1.0}, "written": {"mine": "def reward(rollout):\n    return 1.0\n"}}
    )
    said = scored(Batch.of(rollouts), PARENT, new, HarnessContext(scorer=broken))
    assert said.label == "probe_failed" and "ZeroDivisionError" in said.why
    with pytest.raises(ZeroDivisionError):  # nothing new: the fault is ours
        scored(Batch.of(rollouts), new, new, HarnessContext(scorer=broken))


def test_the_machines_own_fault_is_raised(rollouts: list[Rollout]) -> None:
    def gone(source: str, evidence: object) -> Any:
        raise EvoTrainerError("the sandbox broke")

    new = {"rewards": {"mine": 1.0}, "written": {"mine": "def reward(rollout):\n    return 1.0\n"}}
    with pytest.raises(EvoTrainerError):
        backtest(change("written_reward", new), PARENT, rollouts, HarnessContext(scorer=gone))


def test_names_of_ones_own_do_not_blind_the_search_for_copies(runner: RewardRunner) -> None:
    """The copy is found though the source defines `float`, `len` and `isinstance` of its own."""
    import numpy as np

    text = (
        "def isinstance(a, b):\n    return False\n\n\ndef float(x):\n    return 10 ** 5000\n\n\n"
        "def len(x):\n    return 10 ** 5000\n\n\ndef reward(rollout):\n    right = rollout['n'] > 2\n"
        "    return 0.5 if rollout['m'] else 0.25 + 0.0 * right\n"
    )
    shown = [{"n": 1 + 2 * (i % 2), "m": i % 3} for i in range(80)]
    truth = np.array([float(i % 2) for i in range(80)])
    found = within(text, shown, truth, [], runner, 0.01)
    assert found is not None and found[0] == "reads_protected"


ODD = [
    *(10**n for n in (19, 400, 5000)), -(10**400), math.nan, math.inf, True, None, "\ud800", "\x00", "x" * 99_999, [],
    {}, {"": 1}, {"\ud800": "\ud800"}, {"mine": 10**400}, {"mine": None}, {"mine": ["x"]}, b"\xff", 1j, object(),
    {"rewards": {"visible": 1.0, "mine": -(10**400)}, "written": {"mine": "def reward(rollout):\n    return 1.0\n"}},
    {"rewards": {"mine": 1.0}, "written": {"mine": "(" * 5000}},
    {"rewards": {"mine": 1.0}, "written": {"mine": "def reward(rollout):\n    return " + "-" * 3000 + "1\n"}},
    {"rewards": {"mine": 1.0}, "written": {"mine": "def reward(rollout):\n    return 0x" + "f" * 9000}},
    {"rewards": {"mine": 1.0}, "written": {"mine": "def reward(rollout):\n    '''\ud800'''\n    return 0.5\n"}},
]  # fmt: skip


@pytest.mark.parametrize("factor", ["written_reward", "hooks", "rewards", "scaffold.system", "knobs.x", "lr", "credit"])
def test_a_hostile_value_of_a_proposal_is_refused_in_words(factor: str, rollouts: list[Rollout]) -> None:
    """Scaffolds, weights and sources come as data of a proposal: no value of it raises anything but ours."""
    for value in ODD:
        with suppress(EvoTrainerError, ValidationError):  # what JSON cannot hold no proposal holds
            b = backtest(change(factor, value), PARENT, rollouts, HarnessContext(**CONTEXT))
            json.dumps(b.reason, ensure_ascii=False).encode()


def test_a_docstring_without_text_can_be_stored() -> None:
    about('def reward(rollout):\n    "\\ud800"\n    return 1.0\n').encode()
