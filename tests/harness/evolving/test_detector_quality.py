"""`harness.evolving.detector_quality`: counts, seen and unseen apart, lead time; the numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evotrainer.errors import ConfigError
from evotrainer.harness.evolving.detector_quality import (
    DetectorFiring,
    LabelledPolicy,
    counts,
    damage_step,
    exact,
    fire_of,
    fire_of_mask,
    over_steps,
    test_detector,
)
from evotrainer.records.detectors import DetectorTest
from evotrainer.records.findings import Finding

VERSIONS = [
    LabelledPolicy("a/b1", bad=True, seen=True, damage=40),
    LabelledPolicy("a/b2", bad=False, seen=True),
    LabelledPolicy("a/b3", bad=True, damage=40),
    LabelledPolicy("c/b1", bad=True, damage=40),
    LabelledPolicy("c/b2", bad=False),
    LabelledPolicy("c/b3", bad=False),
]
FIRES = {
    "a/b1": DetectorFiring(True, "critical", 0.5, step=10),
    "a/b3": DetectorFiring(True, "warn", 0.1, step=30),
    "c/b2": DetectorFiring(True, "warn", 0.02, step=5),
}


def test_counts_are_those_of_the_table() -> None:
    t = test_detector("leak", FIRES, VERSIONS)
    assert (t.whole.n, t.whole.bad, t.whole.fired, t.whole.caught) == (6, 3, 3, 2)
    assert t.whole.precision == pytest.approx(2 / 3)
    assert t.whole.recall == pytest.approx(2 / 3)
    assert t.whole.false_positive_rate == pytest.approx(1 / 3)
    assert (t.seen.precision, t.seen.recall, t.seen.false_positive_rate) == (1.0, 1.0, 0.0)
    assert (t.unseen.n, t.unseen.precision, t.unseen.recall) == (4, 0.5, 0.5)


def test_lead_is_known_only_where_a_bad_version_was_caught_in_time_or_late() -> None:
    late = {**FIRES, "c/b1": DetectorFiring(True, "warn", 0.3, step=45)}
    t = test_detector("leak", late, VERSIONS)
    assert {c.version: c.lead for c in t.cases if c.lead is not None} == {"a/b1": 30, "a/b3": 10, "c/b1": -5}
    assert (t.whole.lead_steps, t.whole.leads) == (10.0, 3)
    assert next(c for c in t.cases if c.version == "c/b2").lead is None  # a false alarm leads nothing


def test_rates_without_a_denominator_are_none_and_bounds_are_exact() -> None:
    nothing = test_detector("never", {}, VERSIONS[:1])
    assert nothing.whole.precision is None and nothing.whole.false_positive_rate is None
    assert nothing.whole.recall == 0.0 and nothing.unseen.n == 0 and nothing.unseen.recall is None
    # rule of three: 0 of 30 at 95% one-sided is 1 - 0.05^(1/30)
    assert exact(0, 30)[2] == pytest.approx(1 - 0.05 ** (1 / 30), abs=1e-6)
    assert exact(30, 30)[1] == pytest.approx(0.05 ** (1 / 30), abs=1e-6)


def test_a_record_survives_json() -> None:
    t = test_detector("leak", FIRES, VERSIONS, counts([True, False], [True, True]))
    assert DetectorTest.model_validate_json(t.model_dump_json()) == t
    assert t.rollouts is not None and t.rollouts.recall == 0.5


def test_a_version_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="named twice"):
        test_detector("x", {}, [VERSIONS[0], VERSIONS[0]])


def test_findings_fire_from_warn_on_and_blindness_is_no_firing() -> None:
    info = Finding(detector="d", kind="k", severity="info", claim="c", numbers={"share": 0.001})
    warn = info.model_copy(update={"severity": "warn", "numbers": {"share": 0.2}})
    blind = Finding(detector="d", kind="k", severity="info", claim="cannot look", missing=("actions",))
    assert fire_of([info]) == DetectorFiring(False, "info", 0.001)
    assert fire_of([info, warn], "d") == DetectorFiring(True, "warn", 0.2)
    assert fire_of([warn], "other") == DetectorFiring(False) and fire_of([blind]) == DetectorFiring(False)
    assert fire_of([info], least="info").fired


def test_a_mask_fires_above_its_threshold() -> None:
    mask = np.array([True, False, False, False])
    assert fire_of_mask(mask, 0.2).fired and not fire_of_mask(mask, 0.25).fired
    assert not fire_of_mask(np.zeros(0, dtype=bool), 0.0).fired


def test_the_first_step_that_fires_is_the_firing_step() -> None:
    series = [
        (0, DetectorFiring(False)),
        (10, DetectorFiring(True, "warn", 0.1)),
        (20, DetectorFiring(True, "critical", 0.6)),
    ]
    assert over_steps(series) == DetectorFiring(True, "critical", 0.6, 10)
    assert over_steps(series, DetectorFiring(False, "info", 0.01)) == DetectorFiring(False, "info", 0.01, None)
    assert over_steps([(0, DetectorFiring(False))]).fired is False


def test_damage_is_where_a_curve_falls_and_stays() -> None:
    rng = np.random.default_rng(0)
    rise = [0.3 + 0.01 * i for i in range(30)]
    fall = [0.6 - 0.02 * i for i in range(20)]
    curve = [(i, x + rng.normal(0, 0.01)) for i, x in enumerate(rise + fall)]
    found = damage_step(curve)
    assert found is not None and 32 <= found <= 40
    assert damage_step(curve[:30]) is None  # it only rises
    dip = [(i, 0.5 if not 10 <= i < 15 else 0.2) for i in range(40)]
    assert damage_step(dip) is None  # it recovers
    noise = [(i, 0.5 + rng.normal(0, 0.1)) for i in range(60)]
    assert damage_step(noise) is None
    assert damage_step([(0, 1.0), (1, 0.0)]) is None


def test_noise_alone_hardly_ever_counts_as_damage() -> None:
    rng = np.random.default_rng(1)
    found = [damage_step([(i, float(x)) for i, x in enumerate(rng.normal(0.5, 0.05, 50))]) for _ in range(300)]
    assert math.fsum(f is not None for f in found) <= 30
