"""`harness.versions`, `harness.diagnose`, `harness.render`: the harness as a whole, and texts that want to break it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import ConfigError
from evotrainer.harness import KINDS, Harness, HarnessContext, diagnose, render_text
from evotrainer.harness.code_reading.program import facts
from evotrainer.harness.detectors import DETECTORS
from evotrainer.records.findings import Finding, HealthReport, MetricValue
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from evotrainer.records.text import clean
from tests.harness.detectors.test_cases import gap_batch
from tests.harness_inputs import READ, code_batch, coded, groups, metrics, reading, recipe, rollout

PROXY = HarnessContext(recipe=recipe(), proxy=("visible", "hidden"), max_tokens=96)


class TestReading:
    def test_the_human_recipes_failure_is_found_named_and_explained(self) -> None:
        """Visible-test reward, programs that crash on the empty list: the story of the quickstart."""
        h = Harness.default().read(gap_batch(4, "crash"), "b0@30 search", PROXY)
        assert h.bottlenecks[0].name == "proxy_gap"
        assert set(h.bottlenecks[0].findings) >= {"proxy_divergence", "edge_crash"}
        assert "crash" in h.bottlenecks[0].explanation
        assert all(b.name != "edge_crash" for b in h.bottlenecks)
        text = render_text(h)
        assert "**proxy_gap**" in text
        assert "ValueError" in text
        assert "Factors that may help: rewards" in text

    def test_a_gap_of_a_proxy_that_is_not_paid_is_no_cause_to_act(self) -> None:
        rs = gap_batch(4, "crash")
        paid = Harness.default().read(rs, "s", PROXY)
        other = HarnessContext(recipe=recipe(rewards={"hidden": 1.0}), proxy=("visible", "hidden"), max_tokens=96)
        unpaid = Harness.default().read(rs, "s", other)
        score = {
            h: next(b.score for b in r.bottlenecks if b.name == "proxy_gap") for h, r in (("p", paid), ("u", unpaid))
        }
        assert score["u"] < score["p"] - 0.2
        told = next(b.explanation for b in unpaid.bottlenecks if b.name == "proxy_gap")
        assert "does not pay the proxy" in told

    def test_healthy_rollouts_have_no_bottleneck(self) -> None:
        rs = code_batch(
            30, 4, lambda t, k: coded(t, k, READ + f"print(sum(x + {t} for x in xs) * {k + 2})", k > 1, True)
        )
        h = Harness.default().read(rs, "b1@30 search", PROXY)
        assert h.bottlenecks == ()
        assert "No bottleneck found." in render_text(h)

    def test_a_metric_out_of_its_range_is_told_where_no_detector_has_a_finding(self) -> None:
        off = MetricValue(name="proxy_gap", layer="score", value=0.06, healthy=(None, 0.03))
        lacks = MetricValue(name="transition", layer="score", value=None, missing=("context.before, or several steps",))
        h = HealthReport(harness="h1", subject="b1@20 search", rollouts=9, groups=3, metrics=(off, lacks), findings=())
        text = render_text(h, every=False)
        assert "No bottleneck found" not in text
        assert "No detector names a cause; outside the healthy range: proxy_gap." in text
        assert "Missing: the scores of an earlier version, or several steps." in text, "no name of ours"
        assert "No bottleneck found." in render_text(h.model_copy(update={"metrics": ()}))

    def test_critical_findings_are_told_first(self) -> None:
        found = [Finding(detector=f"d_{s}", kind="x", severity=s, claim="c") for s in ("info", "warn", "critical")]
        h = HealthReport(harness="h1", subject="s", rollouts=9, groups=3, metrics=(), findings=(*found,))
        text = render_text(h)
        assert text.index("d_critical") < text.index("d_warn") < text.index("d_info")

    def test_reading_twice_gives_the_same_report(self) -> None:
        rs = gap_batch(4, "crash")
        assert Harness.default().read(rs, "s", PROXY) == Harness.default().read(iter(rs), "s", PROXY)

    def test_the_report_survives_json(self) -> None:
        h = Harness.default().read(gap_batch(4), "s", PROXY)
        assert HealthReport.model_validate_json(h.model_dump_json()) == h

    def test_nothing_to_read(self) -> None:
        h = Harness.default().read([], "s")
        assert (h.rollouts, h.groups, h.bottlenecks) == (0, 0, ())
        assert render_text(h)

    def test_faults_are_in_the_count_and_in_no_group(self) -> None:
        rs = [rollout("t0", k, error_kind="sandbox" if k else None) for k in range(4)]
        h = Harness.default().read(rs, "s")
        assert (h.rollouts, h.groups) == (4, 1)
        assert h.metric("error_rate") == pytest.approx(0.75)

    def test_the_minimal_harness_sees_scores_only(self) -> None:
        h = Harness.minimal().read(gap_batch(4, "crash"), "s", PROXY)
        assert {m.layer for m in h.metrics} == {"score"}
        assert h.findings == ()
        assert h.bottlenecks == ()


class TestVersions:
    def test_every_threshold_in_force_is_written_out_and_hashed(self) -> None:
        h = Harness.default()
        assert h.thresholds["dead_groups.warn"] == 0.3
        assert Harness.model_validate(json.loads(h.model_dump_json())).hash == h.hash
        assert h.evolve("h1", thresholds={"dead_groups.warn": 0.2}).hash != h.hash

    def test_a_changed_threshold_changes_the_reading(self) -> None:
        rs = groups([[0, 0]] * 25 + [[0, 1]] * 75)
        strict = Harness.default().evolve("h1", thresholds={"dead_groups.warn": 0.2})
        assert strict.parent == "h0"
        assert not [f for f in Harness.default().read(rs, "s").findings if f.detector == "dead_groups"]
        (f,) = [f for f in strict.read(rs, "s").findings if f.detector == "dead_groups"]
        assert f.thresholds["warn"] == 0.2

    def test_a_dropped_detector_is_silent(self) -> None:
        h = Harness.default().evolve("h1", drop=["dead_groups"])
        assert not [f for f in h.read(groups([[0, 0]] * 20), "s").findings if f.detector == "dead_groups"]
        assert not [k for k in h.thresholds if k.startswith("dead_groups.")]

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="unknown detector bogus"):
            Harness.default().evolve("h1", add=["bogus"])
        with pytest.raises(ConfigError, match=r"unknown threshold dead_groups\.wran"):
            Harness.default().evolve("h1", thresholds={"dead_groups.wran": 0.2})

    def test_every_detector_is_documented_and_speaks_of_a_known_kind(self) -> None:
        for d in DETECTORS.values():
            assert d.kind in KINDS
            assert (d.function.__doc__ or "").strip()


def finding(detector: str, severity: str = "critical", **fields: object) -> Finding:
    kind = DETECTORS[detector].kind
    return Finding(detector=detector, kind=kind, severity=severity, claim=f"{detector} says so", **fields)  # type: ignore[arg-type]


class TestDiagnosis:
    def names(self, *findings: Finding, context: HarnessContext | None = None) -> list[str]:
        return [b.name for b in diagnose({}, findings, context)]

    def test_validity_outranks_every_score(self) -> None:
        leak = finding("answer_leak", validity=True)
        ranked = diagnose({}, [finding("proxy_divergence", numbers={"gap": 0.3}), leak, finding("dead_groups")])
        assert ranked[0].name == "answer_leak"
        assert ranked[0].score == 1.0
        assert "no score of this branch means anything" in ranked[0].explanation

    def test_the_score_layer_alone_is_never_enough(self) -> None:
        (alone,) = diagnose({}, [finding("policy_collapse")])
        assert alone.score <= 0.5
        assert "only the score says so" in alone.explanation.lower()
        ranked = diagnose({}, [finding("policy_collapse"), finding("echo_trap")])
        assert ranked[0].score > 0.5

    def test_special_casing_that_explains_the_gap_takes_its_name(self) -> None:
        gap = finding("proxy_divergence", numbers={"gap": 0.1})
        assert self.names(gap, finding("special_casing", numbers={"share": 0.09})) == ["special_casing"]
        assert self.names(gap, finding("special_casing", "warn", numbers={"share": 0.03}))[0] == "proxy_gap"

    def test_dead_training_explains_dead_groups(self) -> None:
        (b,) = diagnose({}, [finding("dead_groups"), finding("dead_training")])
        assert (b.name, b.findings) == ("dead_training", ("dead_training", "dead_groups"))

    def test_echo_and_falling_entropy_are_one_trap(self) -> None:
        assert self.names(finding("echo_trap"), finding("entropy_collapse"), finding("exploration_collapse")) == [
            "echo_trap"
        ]

    def test_blindness_is_no_bottleneck(self) -> None:
        assert self.names(finding("truncation", "info", missing=("finish",))) == []

    def test_an_unexplained_jump_is_a_diagnostic_gap(self) -> None:
        before = HarnessContext(previous=(reading(accuracy=(0.5, 0.01)),))
        (b,) = diagnose(metrics(groups([[1, 1, 1, 0]] * 60)), [], before)
        assert b.name == "unexplained"
        assert diagnose(metrics(groups([[1, 0, 1, 0]] * 60)), [], before) == ()

    def test_scores_stay_in_the_unit_interval_and_sorted(self) -> None:
        ranked = diagnose({}, [finding(d, validity=True, numbers={"x": 1e9}) for d in DETECTORS])
        scores = [b.score for b in ranked]
        assert all(0 <= s <= 1 for s in scores)
        assert scores == sorted(scores, reverse=True)


HOSTILE = [
    "",
    "\x00",
    "\ud800",
    "(" * 50_000,
    "-" * 100_000 + "1",
    "a" + ".b" * 50_000,
    "(f\n" + "()\n" * 4_000 + ")",
    "x = " + "9" * 10_000,
    "x = 0x" + "f" * 19_000,
    "lambda:" * 5_000,
    "".join(" " * i + "if x:\n" for i in range(95)) + " " * 96 + "pass",
    "f'{" * 3_000,
    "\x1b[2J\x1b]0;title\x07<script>alert(1)</script>",
    "```python\n" * 3_000,
    "print(open('\ud800tests/x'))",
    "é" * 30_000,
]


class TestHostileText:
    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    def test_reading_a_hostile_text_neither_crashes_nor_leaks_control_characters(self, text: str) -> None:
        turns = (Turn("user", text), Turn("assistant", text, (ToolCall("bash", text, None),)), Turn("tool", text))
        rs = [
            rollout(f"t{t}", k, text=text, reward=float(k), correct=bool(k), tokens=3, finish="length",
                    detail={"tests": [{"kind": "visible", "input": text, "expected": text}, text, None]}, error=text)
            for t in range(9)
            for k in range(2)
        ]  # fmt: skip
        rs += [rollout(f"t{t}", 5, turns=turns) for t in range(9)]
        rs += [rollout("t0", 6 + k, error_kind="x", error=text) for k in range(9)]
        h = Harness.default().read(rs, "s", PROXY)
        shown = render_text(h) + h.model_dump_json()
        assert "\x1b" not in shown
        assert "\x00" not in shown

    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=300))
    def test_any_text_can_be_analysed(self, text: str) -> None:
        f = facts(text)
        assert f.parsed == (f.reason == ""), "parsed, or told why not"
        clean(text).encode("utf-8")

    def test_rollouts_with_odd_fields_are_read(self) -> None:
        odd = [
            Rollout(id="", task="", turns=(), reward=None),
            Rollout(id="a", task="t", turns=(Turn("assistant", None),), reward=float("inf")),  # type: ignore[arg-type]
            Rollout(
                id="b", task="t", turns=(Turn("assistant", "x"),), reward=1.0, components={"c": None, "d": float("nan")}
            ),
            Rollout(id="c", task="t", turns=(Turn("tool", "x"),), reward=0.0, detail={"tests": {"not": "a list"}}),
            Rollout(
                id="d",
                task="t",
                turns=(Turn("assistant", "x"),),
                reward=0.0,
                detail={"tests": [{"expected": [1, [2]]}]},
            ),
            Rollout(id="e", task="t", turns=(), reward=1.0, mean_logprob=float("nan"), entropy=float("-inf"), tokens=0),
        ]
        h = Harness.default().read(odd, "s", PROXY)
        assert h.rollouts == 6
        assert render_text(h)

    def test_a_ten_megabyte_line_is_read_in_part(self) -> None:
        rs = [
            rollout(f"t{t}", k, text="x" * 10_000_000 if (t, k) == (0, 0) else "print(1)", reward=float(k))
            for t in range(4)
            for k in range(2)
        ]
        assert Harness.default().read(rs, "s").rollouts == 8
