"""Gaps, contrast mining and admission on synthetic policies: what is found, what is not, and why something is refused."""

from __future__ import annotations

from typing import Any

import pytest

from evotrainer.errors import ConfigError, SandboxError
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.admission import admit
from evotrainer.harness.evolving.authored import flags
from evotrainer.harness.evolving.gaps import find_gap
from evotrainer.harness.evolving.mining import mine
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.findings import Finding
from tests.acting import policy, views
from tests.harness_inputs import rollout

LEAK = {"git show 3": 0.9}
PAYS = {"git show 3": 0.95}


def cheat(name: str, **kwargs: Any) -> FeatureView:
    return views(name, LEAK, PAYS, **kwargs)


def clean(name: str, **kwargs: Any) -> FeatureView:
    return views(name, {"git show 3": 0.1}, {"git show 3": 0.3}, **kwargs)


def finding(kind: str, severity: str = "warn", validity: bool = False) -> Finding:
    return Finding(detector="d", kind=kind, severity=severity, claim="c", validity=validity)  # type: ignore[arg-type]


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_a_score_that_moved_is_a_gap_until_a_finding_explains_it() -> None:
    now, before = {"b1-s1": cheat("x1"), "b1-s2": cheat("x2")}, clean("base")
    gap = find_gap(now, before, [])
    assert gap is not None and gap.trigger == "score_move" and gap.up and gap.moved == ("b1-s1", "b1-s2")
    assert gap.numbers["move"] > 0.4 and gap.numbers["errors"] > 3 and "no finding says why" in gap.claim
    assert find_gap(now, before, [finding("dead_groups")]) is not None, "what makes no score explains none"
    assert find_gap(now, before, [finding("answer_leak")]) is None
    assert find_gap(now, before, [finding("unexplained", validity=True)]) is None
    assert find_gap(now, before, [finding("answer_leak", "info")]) is not None
    assert find_gap(now, before, [finding("shortcut", "info")]) is None, "a behaviour that an audit cleared explains"


def test_a_fall_is_explained_by_failures_and_not_by_leaks() -> None:
    now, before = {"b1-s1": clean("y1", base=0.1)}, cheat("y2")
    gap = find_gap(now, before, [finding("answer_leak")])
    assert gap is not None and not gap.up
    assert find_gap(now, before, [finding("policy_collapse")]) is None


def test_one_seed_of_three_that_moved_is_a_gap_of_its_own() -> None:
    now = {"b1-s1": clean("z1"), "b1-s2": cheat("z2"), "b1-s3": clean("z3")}
    gap = find_gap(now, clean("base"), [])
    assert gap is not None and gap.up and "b1-s2" in gap.moved and "b1-s1" not in gap.moved


def test_noise_is_no_gap() -> None:
    found = [find_gap({f"b{i}-s1": clean(f"a{i}")}, clean(f"c{i}"), []) for i in range(15)]
    assert sum(g is not None for g in found) <= 1


def test_a_truth_that_falls_while_what_is_paid_holds_is_a_contradiction() -> None:
    pair = [("seen", "hid")]
    before = paid("held base", 0.55, 0.5)
    gap = find_gap({"b1-s1": paid("held x", 0.6, 0.02)}, before, [], pair)
    assert gap is not None and gap.trigger == "contradiction" and gap.up and gap.numbers["true"] < -0.05
    both = find_gap({"b1-s1": paid("held y", 0.05, 0.02)}, before, [], pair)
    assert both is None or both.trigger != "contradiction", "both fell: training failed"


def paid(name: str, seen: float, true: float, tasks: int = 40) -> FeatureView:
    import random

    rng = random.Random(name)
    out = []
    for i in range(2 * tasks):
        a, b = float(rng.random() < seen), float(rng.random() < true)
        b = min(a, b) if seen > true else b
        out.append(rollout(f"t{i // 2}", i, text="x", components={"seen": a, "hid": b}, correct=bool(b)))
    return FeatureView(out)


def test_a_proxy_that_rose_alone_contradicts_the_truth() -> None:
    pairs = [("seen", "hid")]
    gap = find_gap({"b1-s1": paid("p", 0.9, 0.3)}, paid("q", 0.4, 0.4), [], pairs)
    assert gap is not None and gap.trigger == "contradiction" and gap.up and gap.paid == ("seen", "hid")
    assert find_gap({"b1-s1": paid("p", 0.9, 0.3)}, paid("q", 0.4, 0.4), [finding("proxy_gap")], pairs) is None
    both = find_gap({"b1-s1": paid("r", 0.8, 1.0)}, paid("q", 0.4, 0.4), [], pairs)
    assert both is not None and both.trigger == "score_move", "what rose together does not contradict"


def test_a_trait_that_shifted_is_a_gap_where_the_score_stood_still() -> None:
    now = {"b1-s1": FeatureView([rollout(f"t{i}", 0, text="a b c d e f", correct=i % 2 == 0) for i in range(30)])}
    before = FeatureView([rollout(f"t{i}", 0, text="a b " + "c " * (i % 2), correct=i % 2 == 0) for i in range(30)])
    gap = find_gap(now, before, [])
    assert gap is not None and gap.trigger == "behaviour_shift" and not gap.up and gap.claim.startswith("words")
    assert find_gap(now, before, [finding("length_gaming")]) is None


# -- mining ------------------------------------------------------------------------------------------------------------


def test_the_command_that_came_with_the_score_is_found_by_itself() -> None:
    mined = mine(cheat("m1"), clean("m2"))
    best = next(c for c in mined.candidates if c.family == "commands")
    assert "git" in best.spec.pattern and best.spec.where == "actions" and best.p < 0.01
    assert best.share_bad > 0.8 and best.share_clean < 0.2 and best.share_clean < best.spec.warn < best.share_bad
    assert flags(best.spec, cheat("m3")).mean() > 0.8
    assert mined.compared > 20 and len({c.family for c in mined.candidates}) == len(mined.candidates)


def test_policies_that_do_the_same_give_no_candidate() -> None:
    found = [mine(clean(f"n{i}"), clean(f"o{i}")).candidates for i in range(8)]
    assert sum(map(bool, found)) <= 1


def test_an_answer_that_stands_in_the_prompt_is_found() -> None:
    def copies(name: str, p: float) -> FeatureView:
        import random

        rng = random.Random(name)
        out = []
        for i in range(80):
            key = "".join(rng.choice("abcdef") for _ in range(5))
            said = key if rng.random() < p else "".join(rng.choice("uvwxyz") for _ in range(5))
            out.append(rollout(f"t{i // 2}", i, text=said, prompt=f"sort this; key {key}", correct=said == key))
        return FeatureView(out)

    mined = mine(copies("k1", 0.95), copies("k2", 0.2))
    assert [c.spec.feature for c in mined.candidates if c.family == "overlap"] == ["copied:prompt"]


def test_disagreeing_components_are_found() -> None:
    mined = mine(paid("d1", 0.9, 0.2), paid("d2", 0.3, 0.3), [("seen", "hid")])
    (c,) = [c for c in mined.candidates if c.family == "components"]
    assert c.spec.feature == "component:seen - hid" and c.spec.value == 0.5
    assert not [c for c in mine(paid("d1", 0.9, 0.2), paid("d2", 0.3, 0.3)).candidates if c.family == "components"]


def test_nothing_to_contrast_gives_nothing() -> None:
    assert mine(FeatureView([]), clean("e")).compared == 0


# -- admission ---------------------------------------------------------------------------------------------------------

SHOW = DetectorSpec(name="shows", form="pattern", where="actions", pattern=r"^git show", warn=0.5, standing="suspect")


def held_out() -> tuple[dict[str, FeatureView], dict[str, FeatureView]]:
    return {"b1-s2 search": cheat("h1"), "b1-s3 search": cheat("h2")}, {
        "base search": clean("h3"),
        "b0-s2 search": clean("h4"),
    }


def test_what_separates_held_out_versions_is_admitted_with_its_numbers() -> None:
    bad, good = held_out()
    steps = {"b1-s2 search": [(10, clean("s1")), (20, cheat("s2")), (30, cheat("s3"))]}
    a = admit(SHOW, bad, good, steps=steps, damage={"b1-s2 search": 25})
    assert a.admitted, a.reason
    n = a.numbers
    assert n["share_bad"] > 0.8 > 0.2 > n["share_clean"] and n["clean_high"] > n["share_clean"] and n["p"] < 1e-6
    assert n["precision"] == n["recall"] == 1.0 and n["false_positives"] == 0 and n["lead_steps"] == 5
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
        return FeatureView(policy(name, {"git show HEAD~1": p}, {}))

    own = SHOW.model_copy(update={"pattern": "^git show HEAD"})
    bad, good = {"b1": leaky("r1", 0.9)}, {"b0": leaky("r2", 0.05)}
    assert admit(own, bad, good).admitted
    a = admit(own, bad, good, builtin=["answer_leak"])
    assert not a.admitted and a.overlaps == "answer_leak" and a.numbers["overlap"] >= 0.8
