"""`evotrainer audit`: runs the harness over anybody's rollouts, of any known format and number."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.harness import Batch, Harness, HarnessContext
from evotrainer.harness.columns.traits import Traits
from evotrainer.harness.coverage import could_look
from evotrainer.importers import recognised, with_map
from evotrainer.importers.base import Importer, Skipped, Source, format_of
from evotrainer.importers.rows import read_as
from evotrainer.records.output import Progress
from evotrainer.studies.audit.bulk import FileStretch, ImportResult, stream
from evotrainer.studies.audit.curve_file import Curve, read_curves
from evotrainer.studies.audit.fault_columns import ASKED, check_columns
from evotrainer.studies.audit.probing import ProgramRunner, ProgramsRun
from evotrainer.studies.audit.reading import SubjectReading, own_training, read_subjects
from evotrainer.studies.audit.sources import forget, open_source
from evotrainer.studies.audit.trait_cache import TEMPORARY, CacheError, read_traits
from evotrainer.studies.audit.units import OpenedSource


@dataclass(frozen=True, slots=True)
class SourceReport:
    """One source, as it was read."""

    source: str
    format: str
    rollouts: int
    faults: dict[str, int]
    skipped: tuple[Skipped, ...]
    readings: tuple[SubjectReading, ...]
    read_as: str = ""
    """Which column was read as which field, where the format leaves that open."""
    run: ProgramsRun | None = None
    """What probes could run, where programs were to be run."""
    could_look: Mapping[str, int] = field(default_factory=dict)
    """Detector of hacks by rules -> rollouts that it could look at."""


class TemporaryFolder:
    """A folder that is removed with the last reference to it, or at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=TEMPORARY))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RolloutAudit:
    """Everything an audit found."""

    sources: tuple[SourceReport, ...]
    unknown: tuple[Skipped, ...] = ()
    """Files of no known format."""
    opened: tuple[OpenedSource, ...] = field(default=(), compare=False, repr=False)
    folder: TemporaryFolder | None = field(default=None, compare=False, repr=False)
    """Where `opened` lies when nothing is kept; it goes with the audit."""
    faults: tuple[str, ...] = ()
    """Columns that were said to make faults."""
    traits: tuple[Traits, ...] = field(default=(), compare=False, repr=False)
    """Of `opened`, where they were to be kept."""
    unread: str = ""
    """Why a reader that was asked gave no valid answer."""

    @property
    def rollouts(self) -> int:
        return sum(s.rollouts for s in self.sources)

    @property
    def read(self) -> bool:
        """Whether anything could be read: a rollout, or a learning curve."""
        return bool(self.rollouts) or any(s.format == "curve" for s in self.sources)

    def worst(self) -> str:
        """The highest severity among all findings: "critical", "warn", "info" or ""."""
        found = {f.severity for s in self.sources for r in s.readings for f in r.health.findings if not f.missing}
        return next((level for level in ("critical", "warn", "info") if level in found), "")


@dataclass(slots=True)
class SourceFiles:
    """Files that are read as one."""

    label: str
    importer: Importer
    paths: list[tuple[Path, str]]
    faults: tuple[str, ...] = ()
    """Columns that make faults."""

    def files(self) -> list[FileStretch]:
        return [FileStretch(path, self.importer.name, label, faults=self.faults) for path, label in self.paths]


def audit(
    paths: Iterable[Path | str],
    *,
    format: str | None = None,
    map: Sequence[str] = (),
    proxy: tuple[str, str] | None = None,
    harness: Harness | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    faults: Sequence[str] = (),
    keep: bool = False,
    run: bool = False,
) -> RolloutAudit:
    """Read every rollout under `paths` and report on each source.

    `map`: FIELD=COLUMN of rows whose columns no format knows. `keep`: also keep the traits, for a comparison.
    `faults`: columns that make faults, COLUMN or COLUMN=VALUE. `run`: programs of the rollouts are run in the sandbox
    (docs/probes.md); SandboxError where it could not confine them.
    `cache`: folder that keeps what was read, so that a second audit reads only what is new; None: nothing is kept.
    Raises ConfigError for a path that does not exist, an unknown format or column, or nothing to read.
    """
    say, harness = progress or (lambda what, done, of: None), harness or Harness.default()
    own = TemporaryFolder() if cache is None else None
    folder = own.path if own else cache
    assert folder is not None
    sources, unknown = sources_of(paths, format, map)
    sources = with_faults(sources, faults)
    reports, opened, kept = [], [], []
    runner = ProgramRunner(None if own else folder / "program-runs") if run else None
    for i, source in enumerate(sources):
        say(f"opening {source.label}", i, len(sources))
        for attempt in range(2):
            whole = open_all(source, folder, workers, say)
            report, traits = _report(source, whole, folder, proxy, harness, workers, say, runner)
            if attempt or not any(s.where.startswith(str(folder / "imports")) for s in whole.skipped):
                break
            for item in source.files():  # what was kept is damaged
                forget(folder, item)
        reports.append(report)
        opened.append(whole)
        kept += [traits] if keep else []
    if runner is not None:
        runner.close()
    strangers = []
    for s in unknown:
        found, stranger = _curve_or_stranger(s, harness)
        if found is None:
            strangers.append(stranger)
            continue
        reports.append(found)
        opened.append(OpenedSource())
        kept += [Batch.of(()).traits] if keep else []
    if not reports and not strangers:
        raise ConfigError(f"nothing to read in {', '.join(str(p) for p in paths)}; give files or folders with rollouts")
    _check_proxy(proxy, reports)
    return RolloutAudit(tuple(reports), tuple(strangers), tuple(opened), own, tuple(faults), tuple(kept))


def with_faults(sources: list[SourceFiles], faults: Sequence[str]) -> list[SourceFiles]:
    """Sources with columns that make faults; ConfigError for one that is not there."""
    if not faults:
        return sources
    probe = chain.from_iterable(islice(stream(s.files(), ImportResult()), ASKED) for s in sources)
    check_columns(probe, faults)
    return [replace(s, faults=tuple(faults)) for s in sources]


def _curve_or_stranger(s: Skipped, harness: Harness) -> tuple[SourceReport | None, Skipped]:
    """The report on a file that no importer knows where it is a learning curve, and why it is none else."""
    try:
        curves = read_curves(Path(s.where))
    except ConfigError as e:
        curves, s = [], replace(s, reason=str(e).removeprefix(f"{s.where} "))
    return (_curve_report(s.where, curves, harness) if curves else None), s


def _curve_report(label: str, curves: Sequence[Curve], harness: Harness) -> SourceReport:
    """What learning curves alone tell."""
    readings = []
    for c in curves:
        title = f"learning curve of {len(c.rows)} steps{f' of {c.run}' if c.run else ''}"
        health = harness.read_curve(title, HarnessContext(curve=c.rows))
        readings.append(SubjectReading(title, health, c.finite, columns=tuple(c.table()), notes=c.notes))
    skipped = tuple(x for c in curves for x in c.skipped)
    return SourceReport(label, "curve", 0, {}, skipped, tuple(readings))


def _check_proxy(proxy: tuple[str, str] | None, reports: Sequence[SourceReport]) -> None:
    """ConfigError where no source has both of the components that were named."""
    names = {
        m.name.removeprefix("rewards/").removesuffix("/mean")
        for s in reports
        for r in s.readings
        for m in r.health.metrics
        if m.name.startswith("rewards/") and m.name.endswith("/mean")
    }
    if proxy is not None and reports and not set(proxy) <= names:
        missing = ", ".join(sorted(set(proxy) - names))
        raise ConfigError(
            f"--proxy: no rollout has the reward component {missing}; there are: {', '.join(sorted(names)) or 'none'}"
        )


def default_cache() -> Path:
    """$EVOTRAINER_CACHE, else $XDG_CACHE_HOME/evotrainer, else ~/.cache/evotrainer."""
    if own := os.environ.get("EVOTRAINER_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evotrainer"


def sources_of(
    paths: Iterable[Path | str], format: str | None, map: Sequence[str] = ()
) -> tuple[list[SourceFiles], list[Skipped]]:
    """What lies under `paths`, source by source, and the files of no known format."""
    out: dict[tuple[str, str], SourceFiles] = {}
    unknown: list[Skipped] = []
    for path, label, importer in recognised(paths, with_map(format, map)):
        if isinstance(importer, Skipped):
            unknown.append(Skipped(str(path), importer.reason.removeprefix(f"{path} ").removeprefix(f"{path}: ")))
            continue
        folder = format_of(importer).one_reading(path)
        name = str(folder.resolve() if folder == Path() else folder) if folder else str(path)
        out.setdefault((importer.name, name), SourceFiles(name, importer, [])).paths.append((path, label))
    return list(out.values()), unknown


def open_all(source: SourceFiles, cache: Path, workers: int | None, say: Progress | None = None) -> OpenedSource:
    """All files of a source as one; what cannot be read of it is in `skipped`."""
    whole = OpenedSource()
    for item in source.files():
        try:
            one = open_source(item, cache, workers, say)
        except CacheError:
            raise
        except (EvoTrainerError, OSError) as e:
            one = OpenedSource([], [Skipped(str(item.path), str(e))])
        whole.parts += one.parts
        whole.skipped += one.skipped
    return whole


def _report(
    source: SourceFiles,
    whole: OpenedSource,
    cache: Path,
    proxy: tuple[str, str] | None,
    harness: Harness,
    workers: int | None,
    say: Progress,
    runner: ProgramRunner | None = None,
) -> tuple[SourceReport, Traits]:
    traits = read_traits(whole, cache, workers, say)
    ran = None
    if runner is not None:
        traits, ran = runner.probe(whole, traits, say)
    own = own_training(source.paths[0][0]) if source.importer.name == "store" else {}
    readings = read_subjects(whole, traits, proxy, harness, own, say)
    first = np.sort(np.unique(traits.keys["id"], return_index=True)[1]) if traits.n else np.zeros(0, np.int64)
    code = traits.fault.code[first]
    faults = {k: n for i, k in enumerate(traits.fault.names) if (n := int((code == i).sum()))}
    stored = read_as(source.importer, Source(source.paths[0][0]))
    skipped = tuple(whole.skipped)
    looked = could_look({k: v[first] for k, v in traits.columns.items()})
    name = source.importer.name
    return SourceReport(source.label, name, len(first), faults, skipped, tuple(readings), stored, ran, looked), traits
