"""A detector over all versions whose truth is known: branches of our runs, or labelled rollouts of anybody."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch, HarnessContext
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.detectors import DETECTORS
from evotrainer.harness.evolving.authored import check_spec, flagged, flags
from evotrainer.harness.evolving.detector_quality import (
    DetectorFiring,
    LabelledPolicy,
    counts,
    fire_of,
    fire_of_mask,
    over_steps,
    test_detector,
)
from evotrainer.harness.metrics import METRICS
from evotrainer.records.detectors import DetectorSpec, DetectorTest
from evotrainer.records.findings import MetricValue
from evotrainer.records.frozen import explain
from evotrainer.records.output import Progress
from evotrainer.records.regular_file import read_text
from evotrainer.records.rollout import Rollout
from evotrainer.studies.backtest.sources import is_own
from evotrainer.studies.backtest.versions import LabelledVersion, cases_from_other_tools, cases_of_run, recorded


@dataclass(frozen=True, slots=True)
class DetectorBacktest:
    """A detector's backtest, and the versions that it leaves out."""

    test: DetectorTest
    thresholds: Mapping[str, float]
    unknown: tuple[str, ...] = ()
    """Versions left out, as nothing tells whether they are good or bad."""
    lag: int = 0
    """Steps between two readings of a training: a firing is known so exactly."""


@dataclass(frozen=True, slots=True)
class DetectorReader:
    """A detector, however it is expressed: findings over a batch, and where it can, the rollouts it flags."""

    name: str
    thresholds: Mapping[str, float]
    spec: DetectorSpec | None = None
    runner: Any = None

    def mask(self, batch: Batch) -> np.ndarray:
        """Rollouts it flags, boolean (N,), however few; none where it speaks of batches only."""
        if self.spec is not None:
            return flags(self.spec, FeatureView(batch), self.runner)
        limits = {k: 0.0 if k == "warn" else x for k, x in self.thresholds.items()}
        return flagged([self.name], batch, limits)[self.name]

    def fire(self, batch: Batch, context: HarnessContext) -> DetectorFiring:
        """What it says of a batch."""
        if not batch.n:
            return DetectorFiring(False)
        if self.spec is not None:
            f = fire_of_mask(self.mask(batch), self.spec.warn)
            return replace(f, fired=(f.share or 0.0) >= self.spec.warn)
        found = DETECTORS[self.name].read(batch, LazyMetrics(batch, context), context, self.thresholds)
        return fire_of(found)


class LazyMetrics(Mapping[str, MetricValue]):
    """Metrics of a batch, each read when it is asked for: one detector needs few of them."""

    def __init__(self, batch: Batch, context: HarnessContext) -> None:
        self._batch, self._context = batch, context
        self._read: dict[str, MetricValue] = {}
        self._whole = False

    def _all(self) -> dict[str, MetricValue]:
        if not self._whole:
            for m in METRICS.values():
                self._read |= {v.name: v for v in m.read(self._batch, self._context)}
            self._whole = True
        return self._read

    def __getitem__(self, name: str) -> MetricValue:
        if name in METRICS and name not in self._read and not self._whole:
            self._read |= {v.name: v for v in METRICS[name].read(self._batch, self._context)}
        return self._read[name] if name in self._read else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def detector_of(what: str, settings: Sequence[str], runs: Sequence[Path] = (), runner: Any = None) -> DetectorReader:
    """A registered detector by name, one that a harness of the `runs` adopted, or one from a TOML or JSON file.

    `settings`: thresholds in place of its own.
    """
    limits = _thresholds(what, settings)
    if what in DETECTORS:
        known = DETECTORS[what].thresholds
        strange = sorted(limits.keys() - known.keys())
        if strange:
            raise ConfigError(f"{what} has no threshold {', '.join(strange)}; it has: {', '.join(known) or 'none'}")
        return DetectorReader(what, {**known, **limits})
    adopted = _adopted(runs)
    file = Path(what)
    if what not in adopted and not file.is_file():
        own = f"; adopted by these runs: {', '.join(sorted(adopted))}" if adopted else ""
        raise ConfigError(
            f"no detector {what!r}, and no file of that name; registered are: {', '.join(sorted(DETECTORS))}{own}"
        )
    spec = adopted.get(what) or _spec(file)
    if limits.keys() - {"warn"}:
        raise ConfigError(f"{spec.name} has one threshold: warn, the share of flagged rollouts from which it speaks")
    spec = spec.model_copy(update=dict(limits))
    check_spec(spec)
    if spec.form == "python" and runner is None:
        runner = _sandboxed()
    return DetectorReader(spec.name, {"warn": spec.warn}, spec, runner)


def _thresholds(what: str, settings: Sequence[str]) -> dict[str, float]:
    out = {}
    for s in settings:
        key, _, text = s.partition("=")
        try:
            out[key.strip().removeprefix(f"{what}.")] = float(text)
        except ValueError:
            raise ConfigError(f"{s}: a threshold is a number, e.g. warn=0.02") from None
    return out


def _adopted(runs: Sequence[Path]) -> dict[str, DetectorSpec]:
    """Detectors that the runs' own harnesses took up, by name; the first run's where two have one name."""
    from evotrainer import api

    out: dict[str, DetectorSpec] = {}
    for p in runs:
        if is_own(p):
            for e in api.open_run(p).events():
                for d in e.body.added if e.kind == "harness" else ():
                    out.setdefault(d.name, d)
    return out


def _spec(file: Path) -> DetectorSpec:
    try:
        text = read_text(file)
        if file.suffix == ".json":
            return DetectorSpec.model_validate_json(text)
        return DetectorSpec.model_validate(tomllib.loads(text))
    except ValidationError as e:
        raise ConfigError(f"{file}: {explain(e, DetectorSpec)}") from None
    except (OSError, ValueError) as e:
        raise ConfigError(f"{file} is no detector: {e}") from None


def _sandboxed() -> Any:
    """Runs an authored Python function on JSON, in the strongest sandbox that this machine gives."""
    from evotrainer.sandbox.detector_runner import SandboxRunner

    return SandboxRunner()


def backtest_detector(
    detector: DetectorReader,
    paths: Sequence[Path],
    *,
    bad: Sequence[str] = (),
    seen: Sequence[str] = (),
    label: str | None = None,
    format: str | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DetectorBacktest:
    """Backtest a detector over every branch of the given runs, and every run, branch and split of other rollouts.

    Truth, in this order: `label` (KEY or KEY=VALUE, of a rollout or its detail: a version with a labelled rollout is
    bad), `bad` (all others are good), the ledger (invalid by a confirmed audit or verdict: bad; judged and standing:
    good). A version without any is left out. `seen`: versions looked at when the detector was made; of detectors that a
    run's own harness adopted, the ledger tells. Versions are named `b1`, or `<run>/b1` where there are several runs.
    """
    if not bad and label is None and (done := _without_a_bad_one(detector, paths)) is not None:
        return done
    cases = [c for p in paths if is_own(p) for c in cases_of_run(p, detector.name, progress)]
    if rest := [p for p in paths if not is_own(p)]:
        cases += cases_from_other_tools(rest, format, cache, workers, progress)
    _name_truth(cases, bad, seen, label)
    known = [c for c in cases if c.bad is not None]
    if not known:
        raise ConfigError(
            "nothing tells which versions are bad: give --bad NAME,... or --label KEY[=VALUE]; versions: "
            + (_some([c.name for c in cases]) or "none")
        )
    fires: dict[str, DetectorFiring] = {}
    lag = 0
    for i, c in enumerate(known):
        if progress:
            progress(f"asking about {c.name}", i, len(known))
        fires[c.name], between = _fire(detector, c)
        lag = max(lag, between)
    versions = [LabelledPolicy(c.name, bool(c.bad), c.seen, c.damage) for c in known]
    test = test_detector(detector.name, fires, versions, _rollouts(detector, known))
    return DetectorBacktest(test, detector.thresholds, tuple(c.name for c in cases if c.bad is None), lag)


def _without_a_bad_one(detector: DetectorReader, paths: Sequence[Path]) -> DetectorBacktest | None:
    """Runs whose ledgers know good versions and no bad one judge no detector: told from what the runs read themselves.
    None where rollouts must be read: other paths, a bad version, a detector or thresholds that the runs did not use."""
    ours = detector.spec is None and dict(detector.thresholds) == dict(DETECTORS[detector.name].thresholds)
    if not ours or not all(is_own(p) for p in paths):
        return None
    found = [x for p in paths for x in recorded(p, detector.name)]
    if any(truth for _, truth, _ in found) or all(truth is None for _, truth, _ in found):
        return None
    one = len({name.partition("/")[0] for name, _, _ in found}) == 1
    rows = [(name.partition("/")[2] if one else name, truth, fire) for name, truth, fire in found]
    known = [(name, fire) for name, truth, fire in rows if truth is not None]
    versions = [LabelledPolicy(name, bad=False) for name, _ in known]
    unknown = tuple(name for name, truth, _ in rows if truth is None)
    return DetectorBacktest(test_detector(detector.name, dict(known), versions), detector.thresholds, unknown)


def _fire(detector: DetectorReader, c: LabelledVersion) -> tuple[DetectorFiring, int]:
    """What it says of a version, and since when: its training is read up to there. Also the most steps that were read
    at once."""
    whole = detector.fire(c.whole, c.context)
    series: list[tuple[int, DetectorFiring]] = []
    lag = 0
    for first, last, batch in c.training() if whole.fired else ():
        series.append((last, detector.fire(batch, c.context)))
        lag = max(lag, last - first + 1)
        if series[-1][1].fired:
            break
    return over_steps(series, whole), lag


def _rollouts(detector: DetectorReader, cases: Sequence[LabelledVersion]) -> Any:
    known = [(detector.mask(c.whole), c.labels) for c in cases if c.labels is not None]
    if detector.spec is None and not any(mask.any() for mask, _ in known):
        return None  # it may speak of batches only
    masks, bad = ([x[i] for x in known] for i in range(2))
    return counts(np.concatenate(masks), np.concatenate(bad)) if known else None


def _some(names: Sequence[str]) -> str:
    """The first forty of some names."""
    return ", ".join([*names[:40], *(["..."] if len(names) > 40 else [])])


def _name_truth(cases: Sequence[LabelledVersion], bad: Sequence[str], seen: Sequence[str], label: str | None) -> None:
    """Set `bad`, `seen` and `labels`; ConfigError for a name that is no version."""
    runs = {c.name.partition("/")[0] for c in cases}

    def chosen(names: Sequence[str], option: str) -> set[str]:
        out = set()
        for n in names:
            found = [c.name for c in cases if c.name == n or (len(runs) == 1 and c.name.endswith(f"/{n}"))]
            if not found:
                raise ConfigError(f"{option} {n}: no such version; there are: {_some([c.name for c in cases])}")
            out |= set(found)
        return out

    marked, looked = chosen(bad, "--bad"), chosen(seen, "--seen")
    for c in cases:
        c.seen = c.seen or c.name in looked
        if bad:
            c.bad = c.name in marked
        if label is not None:
            c.labels = _labelled(c.whole, label)
            c.bad = bool(c.labels.any())
    if label is not None and not any(c.bad for c in cases):
        raise ConfigError(f"--label {label}: no rollout carries it")
    if len(runs) == 1:
        for c in cases:
            c.name = c.name.partition("/")[2] or c.name


def _labelled(batch: Batch, label: str) -> np.ndarray:
    key, eq, value = label.partition("=")
    if key == "outcome" and value.lower() in ("correct", "incorrect"):
        return np.asarray(batch.truth == float(value.lower() == "correct"), dtype=bool)
    fields = set(Rollout.__slots__)

    def has(r: Rollout) -> bool:
        x = getattr(r, key) if key in fields else r.detail.get(key)
        return str(x).lower() == value.lower() if eq else bool(x)

    return np.array([has(r) for r in batch.rollouts_at(range(batch.n))], dtype=bool)
