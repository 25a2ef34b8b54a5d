"""Imports others' rollouts: which formats there are, which file is of which, and one stream over all of them.

Each format is a file of `formats`, or a row of `forms`; it is imported when it is first asked for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules

from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.importers import formats
from evotrainer.importers.base import Importer, Skipped, Source, format_of, given_id, imported_id, is_run
from evotrainer.importers.faults import with_only_reply, with_own_length
from evotrainer.importers.forms import FORMS, GIVEN, base_name
from evotrainer.importers.lenient_json import packed
from evotrainer.importers.results import DISPUTED, KEYS, forget_folders, is_near, is_results, with_verdict
from evotrainer.records.caps import COMPONENTS
from evotrainer.records.reading import is_store
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import cause, counted

SHIPPED = (*sorted(m.name for m in iter_modules(formats.__path__)), *FORMS, "jsonl", "table")
"""Names of the formats that come with the package."""

NO_DATA = ("license", "notice", "readme", "changelog", "authors")
"""Beginnings of names of files that come with data and are no data; they are passed over in folders without a word."""
NO_DATA_EXACT = frozenset(
    {"metadata.json", "config.toml", "aggregated_results.jsonl", "batch_summary.json", "__pycache__"}
)
PLACES = ("source", "record", "tags", "unread")
"""What a detail has of the record's place, however many columns there are."""


class _Registry(dict[str, Importer | None]):
    """Importers by name in the order of asking, imported on first access; a user's own may be added."""

    def __missing__(self, name: str) -> Importer:
        if GIVEN in name:
            from evotrainer.importers.rows import mapped

            return mapped(name)  # not remembered: it is one command's, and recognises no file by itself
        near = get_close_matches(name, self, 1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise ConfigError(f"unknown rollout format {name!r}{hint}; known are {', '.join(self)}")

    def __getitem__(self, name: str) -> Importer:
        known = super().__getitem__(name)
        if known is None:
            by_columns = name == "table" or name in FORMS
            place = "rows" if by_columns else name if name == "jsonl" else f"formats.{name}"
            try:
                module = import_module(f"evotrainer.importers.{place}")
                known = module.SHIPPED[name] if by_columns else module.IMPORTER
            except ModuleNotFoundError as e:
                raise ConfigError(f"rollout format {name!r} cannot be read here ({e}); install what is missing") from e
            self[name] = known
        return known


IMPORTERS = _Registry(dict.fromkeys(SHIPPED))
"""`IMPORTERS["mine"] = MyImporter()` makes a format of one's own known; it is asked before the shipped ones."""


def detect(path: Path) -> Importer:
    """The importer of a file or store folder; ConfigError where no importer recognises it."""
    source = Source(path)
    check_readable(path)
    try:
        _ = source.head
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}; check its permissions") from e
    for importer in _asked():
        try:
            if importer.recognises(source):
                return importer
        except Exception:  # an importer that stumbles over a foreign file does not recognise it
            continue
    from evotrainer.importers.refusals import why_unread

    raise ConfigError(f"{path} {why_unread(source, SHIPPED)}")


def _asked() -> list[Importer]:
    """All importers in the order in which they are asked: a user's own first, who knows these files better."""
    found = []
    for name in IMPORTERS:
        with suppress(ConfigError):  # an optional library is missing: that format cannot be recognised, the others can
            found.append(IMPORTERS[name])
    return sorted(found, key=lambda i: (i.name in SHIPPED, format_of(i).asked))


def check_readable(path: Path) -> None:
    """ConfigError for what no importer can read: a pipe, a device, a file compressed with anything but gzip."""
    if not path.is_file() and not path.is_dir():
        raise ConfigError(f"{path} is a pipe or a device, no regular file; write its content to a file first")
    try:
        how = packed(path) if path.is_file() else None
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}; check its permissions") from e
    if how:
        raise ConfigError(f"{path} is compressed with {how}; unpack it first (gzip is read as it is)")


def find_sources(paths: Iterable[Path | str]) -> Iterator[Path]:
    """Files and store folders under `paths`, each once: the paths in the order given, folders in sorted order.

    A run folder or a store is one source. Hidden files and files that come with data (LICENSE, README, metadata.json,
    ...) are passed over, unless given by name. ConfigError for a path that does not exist.
    """
    forget_folders()
    listed = [Path(p) for p in paths]
    for p in listed:
        if str(p) == "-":
            raise ConfigError("standard input is not read; write it to a file first and give that")
        if not p.exists():
            raise ConfigError(f"there is no {p}; check the path")
    seen: set[Path] = set()
    for p in listed:
        for found in _walk(p):
            # resolved, so that a link and its target are one source
            key = found.resolve()
            if key not in seen:
                seen.add(key)
                yield found


def rollout_sources(paths: Iterable[Path | str], format: str | None = None) -> list[Path]:
    """What of `find_sources` holds rollouts: without files of verdicts, and without SWE-bench's predictions where a
    trajectory of this reading takes its patch from them (unless `format` says that they are meant)."""
    kinds = {p: _kind_of_results(Source(p)) for p in find_sources(paths)}
    if "predictions" in kinds.values() and base_name(format or "") != "swe_bench":
        plain = (Source(p) for p, kind in kinds.items() if not kind)
        joined = [s.path for s in plain if any(i.recognises(s) for i in _asked() if format_of(i).joined)]
        kinds = {p: kind for p, kind in kinds.items() if not (kind and any(is_near(p, t) for t in joined))}
    return [p for p, kind in kinds.items() if kind != "verdicts"]


def _kind_of_results(source: Source) -> str:
    """Of SWE-bench's files "predictions" or "verdicts", else ""; only what begins with their keys is parsed."""
    with suppress(OSError, ValueError):
        if source.path.suffix.lower() in (".json", ".jsonl") and KEYS.search(source.head):
            predicts = IMPORTERS["swe_bench"].recognises(source)
            return "predictions" if predicts else "verdicts" if is_results(source.path) else ""
    return ""


def _walk(path: Path) -> Iterator[Path]:
    if not path.is_dir() or is_run(path) or is_store(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        if "run_metadata.json" in files or {"sessions", "panes"} <= {*folders}:  # a run or a trial of Terminal-Bench
            files = [f for f in files if f == "results.json"]
            folders[:] = [f for f in folders if f not in ("sessions", "panes", "agent-logs")]
        if (here / "all" / "traces.jsonl").is_file():  # prime-rl: what was trained on is also among all that arrived
            folders[:] = [f for f in folders if f != "effective"]
        for name in sorted(files):
            if not _no_data(name):
                yield here / name
        folders.sort()
        for name in list(folders):
            if _no_data(name):
                folders.remove(name)
            elif is_run(here / name) or is_store(here / name):
                folders.remove(name)
                yield here / name


def _no_data(name: str) -> bool:
    return name.startswith(".") or name.lower().startswith(NO_DATA) or name.lower() in NO_DATA_EXACT


def with_map(format: str | None, given: Sequence[str]) -> str | None:
    """The format of files whose columns are `given`, each FIELD=COLUMN,...; `format` where none is."""
    return f"{format or 'jsonl'}{GIVEN}{','.join(given)}" if given else format


def read(
    paths: Iterable[Path | str], format: str | None = None, map: Mapping[str, str] | None = None
) -> Iterator[tuple[Path, str, Rollout | Skipped]]:
    """(source, format, record) of everything under `paths`, one record in memory at a time.

    `format` takes all sources as of one format; otherwise each is recognised by itself. `map`, field of plain JSONL ->
    column (`{"task": "problem_id"}`), reads all as rows with these columns. A file of no known format, and what an
    importer could not read, come as `Skipped` (format "" for the former); only a path that does not exist, an unknown
    `format` and a `map` of unknown fields raise ConfigError. Ids are unique within a reading: sources of the same file
    name are told apart by their folders.
    """
    for path, label, importer in recognised(paths, with_map(format, [f"{k}={v}" for k, v in (map or {}).items()])):
        if isinstance(importer, Skipped):
            yield path, "", importer
            continue
        for record in guarded(importer, path):
            yield path, importer.name, record if isinstance(record, Skipped) else relabelled(importer, record, label)


def recognised(paths: Iterable[Path | str], format: str | None) -> Iterator[tuple[Path, str, Importer | Skipped]]:
    """(source, its label among those of one name, what reads it or why nothing does) of everything under `paths`."""
    given = IMPORTERS[format] if format is not None else None
    sources = rollout_sources(paths, format)
    for path, label in zip(sources, labels(sources), strict=True):
        try:
            check_readable(path)
            yield path, label, given or detect(path)
        except (EvoTrainerError, OSError) as e:
            yield path, label, Skipped(str(path), str(e))


def guarded(importer: Importer, path: Path) -> Iterator[Rollout | Skipped]:
    """An importer's records; whatever it raises becomes a last `Skipped` with the place that was reached."""
    count, unread, disputed, wide, most = 0, list[str](), None, 0, COMPONENTS.value
    names, shortened = set[str](), 0
    try:
        for record in importer.read(path):
            count += 1
            if not isinstance(record, Skipped):
                if "reward" in record.detail.get("unread", ()):
                    unread.append(str(record.detail.get("record", count)))
                if format_of(importer).joined:
                    record = with_verdict(record, path)
                    disputed = disputed or record.detail.get(DISPUTED)
                # what is ours says of itself what is a fault
                if importer.name != "store":
                    # Inspect has a limit for it; a class that somebody wrote into the plain form by hand stands
                    by_hand = importer.name == "jsonl" and record.error_kind != "other"
                    if importer.name != "inspect" and not by_hand:
                        record = with_own_length(record)
                    record = with_only_reply(record)
                    if len(record.detail) > most:
                        wide += 1
                        few = {k: v for i, (k, v) in enumerate(record.detail.items()) if i < most or k in PLACES}
                        record = replace(record, detail=few)
                names.update(islice((c for c in record.components if c not in names), most - len(names)))
                if not record.components.keys() <= names:
                    shortened += 1
                    record = replace(record, components={c: v for c, v in record.components.items() if c in names})
            yield record
    except EvoTrainerError as e:
        yield Skipped(f"{path} after record {count}", str(e))
    except (Exception, RecursionError) as e:
        reason = f"the {importer.name} importer failed: {type(e).__name__}: {cause(e)}; the rest is unread"
        yield Skipped(f"{path} after record {count}", reason)
    if wide:
        reason = f"has more than {most:,} columns that are no field; those after the first {most:,} are left out"
        yield Skipped(str(path), f"{reason} of {counted(wide, 'rollout')}; if they matter, raise {COMPONENTS.variable}")
    if shortened:
        reason = f"has more than {most:,} distinct names of components; those after the first {most:,} are left out"
        left = f"{reason} of {counted(shortened, 'rollout')}; if they are no mistake, raise {COMPONENTS.variable}"
        yield Skipped(str(path), left)
    if isinstance(disputed, str):
        yield Skipped(str(path), disputed)
    if unread:
        what = "1 reward is no finite number" if len(unread) == 1 else f"{len(unread)} rewards are no finite numbers"
        reason = f"{what} (NaN, words, ...): such a rollout counts as unrewarded"
        yield Skipped(f"{path} record {', '.join(unread[:3])}{', ...' if len(unread) > 3 else ''}", reason)


def relabelled(importer: Importer, r: Rollout, label: str) -> Rollout:
    """The rollout with id and group of its own where several sources of a reading have one file name.

    An id that a plain JSONL record gave itself stays: the same rollout in two files is one."""
    format = format_of(importer)
    if not label or format.own_ids:
        return r
    named = format.names and r.id != imported_id(Path(r.detail["source"]), r.detail["record"])
    if named and format.names == "group":
        return r
    if (
        form := FORMS.get(base_name(importer.name))
    ) and form.one_each:  # its group is of the folder, which the label ends with
        return replace(r, id=given_id(label, r.id), group="/".join([*label.split("/")[:-1], r.group]))
    # the label goes into the hash, not in front of the id: ids keep their length and form
    key = r.id if named else given_id(label, r.id)
    return replace(r, id=key, group=f"{label}/{r.group}" if r.group else "")


def labels(sources: Sequence[Path]) -> list[str]:
    """For each source "", or, where several have one file name, the fewest parent folders that tell them apart."""
    count = Counter(p.name for p in sources)
    out = [""] * len(sources)
    for name in [n for n, c in count.items() if c > 1]:
        same = [i for i, p in enumerate(sources) if p.name == name]
        parents = {i: sources[i].resolve().parent.parts for i in same}
        for depth in range(1, max(map(len, parents.values())) + 1):
            tails = {i: "/".join(parents[i][-depth:]) for i in same}
            if len(set(tails.values())) == len(same):
                break
        for i in same:
            out[i] = tails[i]
    return out
