"""`harness.evolving.gaps`: what nothing explains yet, and what is no gap."""

from __future__ import annotations

from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.gaps import find_gap
from evotrainer.records.findings import Finding
from tests.harness.evolving.policies import cheat, clean, paid
from tests.harness_inputs import rollout


def finding(kind: str, severity: str = "warn", validity: bool = False) -> Finding:
    return Finding(detector="d", kind=kind, severity=severity, claim="c", validity=validity)  # type: ignore[arg-type]


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
    assert "they contradict each other" in gap.claim
    both = find_gap({"b1-s1": paid("held y", 0.05, 0.02)}, before, [], pair)
    assert both is not None and both.trigger == "score_move" and not both.up, "both fell: training failed"


def test_a_proxy_that_rose_alone_contradicts_the_truth() -> None:
    pairs = [("seen", "hid")]
    gap = find_gap({"b1-s1": paid("p", 0.9, 0.3)}, paid("q", 0.4, 0.4), [], pairs)
    assert gap is not None and gap.trigger == "contradiction" and gap.up and gap.paid == ("seen", "hid")
    assert find_gap({"b1-s1": paid("p", 0.9, 0.3)}, paid("q", 0.4, 0.4), [finding("proxy_gap")], pairs) is None
    more = find_gap({"b1-s1": paid("m", 0.9, 0.8)}, paid("q", 0.4, 0.4), [], pairs)
    assert more is not None and more.trigger == "contradiction" and more.numbers["true"] > 0
    assert "seen rose by" in more.claim and "points more than hid did" in more.claim
    assert "contradict" not in more.claim, "both rose"
    both = find_gap({"b1-s1": paid("r", 0.8, 1.0)}, paid("q", 0.4, 0.4), [], pairs)
    assert both is not None and both.trigger == "score_move", "what rose together does not contradict"


def test_a_trait_that_shifted_is_a_gap_where_the_score_stood_still() -> None:
    now = {"b1-s1": FeatureView([rollout(f"t{i}", 0, text="a b c d e f", correct=i % 2 == 0) for i in range(30)])}
    before = FeatureView([rollout(f"t{i}", 0, text="a b " + "c " * (i % 2), correct=i % 2 == 0) for i in range(30)])
    gap = find_gap(now, before, [])
    assert gap is not None and gap.trigger == "behaviour_shift" and not gap.up and gap.claim.startswith("words")
    assert find_gap(now, before, [finding("length_gaming")]) is None
