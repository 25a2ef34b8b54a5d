"""`harness.evolving.admission`: what separates held-out versions is admitted, and why something is refused."""

from __future__ import annotations

from typing import Any

import pytest

from evotrainer.errors import ConfigError, SandboxError
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.admission import admit, exact, rates
from evotrainer.records.detectors import DetectorSpec
from tests.acting import policy
from tests.harness.evolving.policies import cheat, clean, paid

SHOW = DetectorSpec(name="shows", form="pattern", where="actions", pattern=r"^git show", warn=0.5, standing="suspect")


def held_out() -> tuple[dict[str, FeatureView], dict[str, FeatureView]]:
    return {"b1-s2 search": cheat("h1"), "b1-s3 search": cheat("h2")}, {
        "base search": clean("h3"),
        "b0-s2 search": clean("h4"),
    }


def test_what_separates_held_out_versions_is_admitted_with_its_numbers() -> None:
    bad, good = held_out()
    a = admit(SHOW, bad, good)
    assert a.admitted, a.reason
    n = a.numbers
    assert n["share_bad"] > 0.8 > 0.2 > n["share_clean"] and n["clean_high"] > n["share_clean"] and n["p"] < 1e-6
    assert n["precision"] == n["recall"] == 1.0 and n["false_positives"] == 0
    assert n["cpu_s_per_1000"] >= 0 and a.bad == tuple(bad) and a.clean == tuple(good)


def refused(spec: DetectorSpec, **kwargs: Any) -> str:
    bad, good = held_out()
    a = admit(spec, kwargs.pop("bad", bad), kwargs.pop("clean", good), **kwargs)
    assert not a.admitted
    return a.reason


def test_every_refusal_names_its_number() -> None:
    change = SHOW.model_copy
    assert "does not separate: it flags" in refused(change(update={"pattern": "^ls"}))
    assert "fires on 0% of 2 bad" in refused(change(update={"warn": 1.0}))
    assert "fires on 2 of 2 clean" in refused(change(update={"warn": 0.02}))
    assert "too close: clean policies flag" in refused(
        change(update={"warn": 0.16}), clean={"base": clean("few", tasks=8)}
    )
    assert "redundant: it flags what old flags (Jaccard 1.00" in refused(
        SHOW, authored=[change(update={"name": "old"})]
    )
    assert "no held-out bad version" in refused(SHOW, bad={})
    assert "no held-out clean version" in refused(SHOW, clean={"base": FeatureView([])})
    assert "cannot be run" in refused(change(update={"pattern": "("}))
    clock = iter([0.0, 100.0])
    assert "too slow: " in refused(SHOW, spent=lambda: next(clock))


def test_a_function_that_fails_is_refused_with_its_cause() -> None:
    def runner(source: str, rollouts: list[dict[str, object]]) -> object:
        raise ConfigError("flag(rollouts) ended with timeout")

    own = SHOW.model_copy(update={"form": "python", "source": "def flag(r): ..."})
    assert "ended with timeout" in refused(own, runner=runner)


def test_a_fault_of_the_machine_refuses_nothing() -> None:
    def runner(source: str, rollouts: list[dict[str, object]]) -> object:
        raise SandboxError("the sandbox keeps dying")

    with pytest.raises(SandboxError):
        refused(SHOW.model_copy(update={"form": "python", "source": "def flag(r): ..."}), runner=runner)


def said(r: dict[str, Any], what: str) -> bool:
    return any(what in t["text"] for t in r["turns"])


def test_a_function_that_answers_otherwise_the_second_time_is_refused() -> None:
    own = SHOW.model_copy(update={"form": "python", "source": "def flag(r): ..."})
    bad, good = held_out()
    steady = admit(own, bad, good, runner=lambda source, given: [said(r, "git show") for r in given])
    assert steady.admitted, steady.reason
    by_place = refused(own, runner=lambda s, given: [said(r, "git show") and i % 9 > 0 for i, r in enumerate(given)])
    assert by_place.startswith("not deterministic: on the same rollouts in another order it answers otherwise for ")


def test_what_repeats_the_outcome_is_refused_in_both_forms() -> None:
    bad, good = {"b1": paid("f1", 0.9, 0.9)}, {"b0": paid("f2", 0.3, 0.3)}
    component = DetectorSpec(name="right", form="threshold", feature="component:hid", value=0.5, warn=0.6)
    turned = component.model_copy(update={"op": "<=", "feature": "component:seen - hid", "value": 1.0})
    assert all("repeats the score: hid is the outcome" in refused(s, bad=bad, clean=good) for s in (component, turned))
    own = SHOW.model_copy(update={"form": "python", "source": "def flag(r): ..."})
    why = refused(own, bad=bad, clean=good, runner=lambda s, given: [r["components"]["hid"] > 0 for r in given])
    assert why.startswith("repeats the score: it flags the rollouts that are right (100% agree)")


def test_detectors_considered_together_share_the_level() -> None:
    bad, good = held_out()
    one, many = admit(SHOW, bad, good), admit(SHOW, bad, good, together=50)
    assert many.numbers["p"] == pytest.approx(min(1.0, 50 * one.numbers["p"]), abs=1e-6)


def test_flags_of_a_built_in_detector_make_a_copy_redundant() -> None:
    def leaky(name: str, p: float) -> FeatureView:
        return FeatureView(policy(name, {"git show origin/fix": p}, {}))

    own = SHOW.model_copy(update={"pattern": "^git show origin"})
    bad, good = {"b1": leaky("r1", 0.9)}, {"b0": leaky("r2", 0.05)}
    assert admit(own, bad, good).admitted
    a = admit(own, bad, good, builtin=["answer_leak"])
    assert not a.admitted and a.overlaps == "answer_leak" and a.numbers["overlap"] >= 0.8


def test_rates_are_those_of_the_table_and_bounds_are_exact() -> None:
    fired = {"b1": True, "b2": True, "b3": False, "c1": True, "c2": False, "c3": False}
    n = rates(fired, ["b1", "b2", "b3"])
    assert n["precision"] == n["recall"] == pytest.approx(2 / 3, abs=1e-6)
    assert n["false_positive_rate"] == pytest.approx(1 / 3, abs=1e-6)
    silent = rates({"b1": False}, ["b1"])
    assert silent == {"recall": 0.0, "recall_low": 0.0}, "nothing fired, and nothing was clean"
    # rule of three: 0 of 30 at 95% one-sided is 1 - 0.05^(1/30)
    assert exact(0, 30)[2] == pytest.approx(1 - 0.05 ** (1 / 30), abs=1e-6)
    assert exact(30, 30)[1] == pytest.approx(0.05 ** (1 / 30), abs=1e-6)
