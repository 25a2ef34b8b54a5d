"""Tables of rows: a data set by file, folder or Hugging Face id, its columns by name, its own splits onto ours.

`[environment]` says `source`, and where the rows do not speak for themselves `format`, `columns`, `where`, `splits` or
`parts`. What a format makes of a row is its domain's business (maths/dataset.py, code/formats.py, swe/instances.py).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from evotrainer.envs.base import SPLITS, Task
from evotrainer.envs.data.hub import HubSet, parse_hub, read_hub
from evotrainer.envs.data.rows import SUFFIXES, Row, check_shares, form_of, near, read_file
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen
from evotrainer.records.regular_file import absent
from evotrainer.records.text import cut, quoted

T = TypeVar("T")
Shares = Mapping[str, float]
OF_TRAIN: Shares = {"train": 0.9, "search": 0.05, "gate": 0.05}
"""Shares of a data set's own train split where it has no validation split."""
OF_VALIDATION: Shares = {"search": 0.5, "gate": 0.5}
EVALUATION_ONLY: Shares = {"cert": 1.0}
_VALIDATION = ("validation", "valid", "val", "dev")
_PROTECTED = {s: i for i, s in enumerate(SPLITS)}
"""Of two equal rows the one in the later split is kept: cert before gate before search before train."""


class DataOptions(Frozen):
    """Keys of `[environment]` about a data set, shared by all domains."""

    source: str
    """A file (.jsonl, .json, .csv, also .gz; .parquet), a folder of them, or `hf:org/name[:config][@revision]`."""
    format: str = ""
    """How rows are read; empty: recognised by the columns."""
    columns: dict[str, str] = {}
    """The format's column -> its name in the data set, where that differs."""
    where: dict[str, Any] = {}
    """Column -> value, list of values, or {min=, max=}: only such rows."""
    splits: dict[str, float] | None = None
    """Shares of all rows per split, by a stable hash; a row keeps its split when others are added."""
    parts: dict[str, str | dict[str, float]] | None = None
    """The data set's own split -> one of ours, or shares of it; own splits that are not named are not read."""
    duplicates: Literal["refuse", "merge"] = "refuse"
    """The same question in two splits: refused, or kept in the more protected one (cert, gate, search, train)."""
    malformed: Literal["refuse", "skip"] = "refuse"
    """A row that cannot be read: an error, or left out, counted and the first ones named in the description."""
    limit: int | None = Field(None, ge=1)
    """The first rows of each own split only, after `where`."""


@dataclass(frozen=True, slots=True)
class Format:
    """A published form of rows: its columns, each with the names it is known under. Two may share a name."""

    name: str
    needs: Mapping[str, tuple[str, ...]]
    may: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    recognises: Callable[[Row], bool] = lambda row: True
    """Whether a row with these columns is of this form."""

    def read(self, row: Row, columns: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
        """The row with this format's names for its columns, and needed columns it lacks."""
        out, missing = dict(row), []
        for name, known in {**self.needs, **self.may}.items():
            names = (columns[name],) if name in columns else known
            there = next((n for n in names if n in row), None)
            if there is not None:
                out[name] = row[there]
            elif name in self.needs:
                missing.append(name)
        return out, missing


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row, with the format's names for its columns."""

    row: Row
    where: str
    """File or data set, and the row's number, for messages."""
    part: str
    number: int
    shares: Shares
    """The data set's own split."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one format; `about` goes into the environment's description."""

    format: Format
    items: Sequence[TableRow]
    about: Mapping[str, Any]
    skipped: list[str]
    """What is wrong with rows that were left out."""

    def each(self, make: Callable[[TableRow], T | None], malformed: str) -> list[T]:
        """What `make` reads of every row (None: nothing);
        TaskSetError for the first it cannot, unless they are skipped."""
        out = []
        for item in self.items:
            try:
                made = make(item)
            except TaskSetError as e:
                if malformed == "refuse":
                    raise
                self.skipped.append(str(e))
                continue
            if made is not None:
                out.append(made)
        if not out and self.skipped:
            raise TaskSetError(f"no row is left of {len(self.skipped)}; the first: {self.skipped[0]}")
        return out

    def description(self, **more: Any) -> dict[str, Any]:
        """`about`, with what was left out."""
        skipped = {"malformed_left_out": len(self.skipped), "malformed": self.skipped[:5]} if self.skipped else {}
        return {**self.about, **more, **skipped}


def load_table(o: DataOptions, formats: Sequence[Format], domain: str) -> Table:
    """Rows of a data set; TaskSetError names file, row, the columns there are, and close names."""
    if o.splits is not None and o.parts is not None:
        raise TaskSetError(f"environment {domain}: give splits (shares of all rows) or parts (own splits), not both")
    parts, place, about = read_source(o.source, domain)
    if not any(parts.values()):
        raise TaskSetError(f"{o.source} has no rows; give a data set with one task per row")
    plan = _plan(o, parts, domain)
    chosen = {name: _chosen(o, rows, f"{place}, {name}" if len(parts) > 1 else place) for name, rows in parts.items()}
    kept = {name: chosen[name][: o.limit] for name in plan}
    if not any(kept.values()):
        raise TaskSetError(f"{o.source}: no row is left by where = {o.where}; {_values(o, parts)}")
    first = next(rows[0][1] for rows in kept.values() if rows)
    form = _format(o, formats, first, domain)
    items: list[TableRow] = []
    skipped: list[str] = []
    for name, rows in kept.items():
        for n, row in rows:
            where = f"{place}, split {name}, row {n}" if len(parts) > 1 else f"{place}, row {n}"
            read, missing = form.read(row, o.columns)
            if missing:
                skipped.append(_lacks(form, missing[0], row, where, o))
                if o.malformed == "refuse":
                    raise TaskSetError(skipped[0])
                continue
            items.append(TableRow(read, where, name, n, plan[name]))
    about = {**about, "format": form.name, "rows": {name: len(rows) for name, rows in kept.items()}}
    return Table(form, items, about, skipped)


def read_source(source: str, domain: str) -> tuple[dict[str, list[Row]], str, dict[str, Any]]:
    """Own split -> rows; what to call the data set; what to record of it."""
    if not source:
        raise TaskSetError(
            f"environment {domain}: source is empty; give a file, a folder, or hf:org/name[:config][@revision]"
        )
    hub: HubSet | None = parse_hub(source)
    if hub is not None:
        return read_hub(hub), hub.name, {"source": source, "revision": hub.revision}
    p = Path(source).expanduser()
    if p.is_file():
        if not form_of(p):
            raise TaskSetError(f"{p}: no file of rows; give {', '.join(SUFFIXES)}, also with .gz")
        return {stem(p): read_file(p)}, str(p), {"source": source}
    if not p.is_dir():
        raise TaskSetError(
            f"{absent(p, 'file or folder')}; a Hugging Face data set is written hf:org/name[:config][@revision]"
        )
    files = sorted(f for place in (p, p / "data") if place.is_dir() for f in place.iterdir() if form_of(f))
    if not files:
        raise TaskSetError(f"{p} has no data file; put {', '.join(SUFFIXES)} files there, one or more per split")
    parts: dict[str, list[Row]] = {}
    for f in files:
        parts.setdefault(stem(f), []).extend(read_file(f))
    return parts, str(p), {"source": source}


def stem(path: Path) -> str:
    """A file's own split: its name up to the first dot or dash (`train-00000-of-00002.parquet` is of `train`)."""
    return re.split(r"[.-]", path.name, maxsplit=1)[0] or path.name


def _plan(o: DataOptions, parts: Mapping[str, Sequence[Row]], domain: str) -> dict[str, Shares]:
    """Own split -> shares of ours."""
    if o.splits is not None:
        return dict.fromkeys(parts, check_shares(o.splits))
    if o.parts is not None:
        for name in o.parts:
            if name not in parts:
                raise TaskSetError(
                    f"{o.source} has no split {name!r}; it has: {', '.join(parts)}{near(name, parts)} "
                    "(environment.parts)"
                )
        return {n: check_shares({s: 1.0} if isinstance(s, str) else s) for n, s in o.parts.items()}
    if len(parts) == 1:
        return dict.fromkeys(parts, EVALUATION_ONLY)
    held_out = next((n for n in _VALIDATION if n in parts), None)
    known = {"test": EVALUATION_ONLY, "train": OF_TRAIN}
    if held_out is not None:
        known |= {"train": {"train": 1.0}, held_out: OF_VALIDATION}
    if strange := [n for n in parts if n not in known]:
        raise TaskSetError(
            f"{o.source} has the splits {', '.join(parts)}, and {strange[0]!r} is assigned to none of ours; set "
            'environment.parts, such as {train = {train = 0.9, search = 0.05, gate = 0.05}, test = "cert"}'
        )
    return {n: check_shares(known[n]) for n in parts}


def _chosen(o: DataOptions, rows: Sequence[Row], place: str) -> list[tuple[int, Row]]:
    """Rows that `where` selects, with their numbers from 1."""
    out = []
    for n, row in enumerate(rows, 1):
        for column, wanted in o.where.items():
            if column not in row:
                raise TaskSetError(
                    f"{place}, row {n}: where speaks of a column {column!r}; it has: {', '.join(map(str, row))}"
                    f"{near(column, row)}"
                )
            if not _fits(row[column], wanted, f"{place}, row {n}: where {column!r}"):
                break
        else:
            out.append((n, row))
    return out


def _fits(value: Any, wanted: Any, where: str) -> bool:
    if isinstance(wanted, Mapping):
        if not wanted or set(wanted) - {"min", "max"}:
            raise TaskSetError(f"{where} must be a value, a list of values, or {{min = ..., max = ...}}, not {wanted}")
        if value is None:
            return False
        try:
            bounds = [float(value) if isinstance(b, (int, float)) else str(value) for b in wanted.values()]
        except (TypeError, ValueError):
            raise TaskSetError(f"{where}: {quoted(value, 40)} is no number to compare; correct the row") from None
        sides = zip(wanted.items(), bounds, strict=True)
        return all(x >= bound if side == "min" else x <= bound for (side, bound), x in sides)
    any_of = wanted if isinstance(wanted, list) else [wanted]
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(v == w or str(v) == str(w) for v in values for w in any_of)


def _values(o: DataOptions, parts: Mapping[str, Sequence[Row]]) -> str:
    """What the columns of `where` hold."""
    described = []
    for column in o.where:
        seen = list(dict.fromkeys(cut(r.get(column), 40) for rows in parts.values() for r in rows[:1000]))
        described.append(f"{column} holds {', '.join(seen[:8])}{', ...' if len(seen) > 8 else ''}")
    return "; ".join(described) or "the splits that are read are empty"


def _format(o: DataOptions, formats: Sequence[Format], row: Row, domain: str) -> Format:
    names = list(dict.fromkeys(f.name for f in formats))
    named = [f for f in formats if o.format in ("", f.name)]
    if not named:
        raise TaskSetError(
            f"environment {domain} knows no format {o.format!r}; one of: {', '.join(names)}{near(o.format, names)}"
        )

    def fits(form: Format) -> bool:
        values, lacking = form.read(row, o.columns)
        return not lacking and bool(o.format or form.recognises(values))

    only = named[0] if o.format or len(named) == 1 else None
    form = next(filter(fits, named), only)
    if form is None:
        wanted = "; ".join(f"{f.name}: {', '.join(f.needs)}" for f in formats)
        raise TaskSetError(
            f"{o.source}: columns {', '.join(map(str, row))} are of no format that environment {domain} knows "
            f"({wanted}); "
            'set environment.format, and environment.columns = {column = "its name there"}'
        )
    columns = [*form.needs, *form.may]
    for name, there in o.columns.items():
        if name not in columns:
            raise TaskSetError(
                f"environment.columns: format {form.name} has no column {name!r}; it has: {', '.join(columns)}"
                f"{near(name, columns)}"
            )
        if there not in row and name in form.may:
            raise TaskSetError(_lacks(form, name, row, o.source, o))
    return form


def _lacks(form: Format, name: str, row: Row, where: str, o: DataOptions) -> str:
    known = (o.columns[name],) if name in o.columns else {**form.needs, **form.may}[name]
    guesses = [near(n, row) for n in (*known, name)]
    guess = next((g for g in guesses if g), "")
    return (
        f"{where}: no column {' or '.join(map(repr, known))} (format {form.name}); it has: "
        f"{', '.join(map(str, row))}{guess}; "
        f'set environment.columns = {{{name} = "its name there"}}'
    )


def same_text(text: str) -> str:
    """The normal form by which equal questions are found: lower case, digits, signs; blanks make no difference."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def without_duplicates(
    name: str, tasks: Iterable[T], mode: str, *, of: Callable[[T], Task], ask: Callable[[T], str]
) -> tuple[list[T], int]:
    """Tasks of which no two splits ask the same, and how many were left out;
    of equal ones in one split the first stays.

    TaskSetError for the same question in two splits where `mode` is refuse.
    """
    kept: dict[str, T] = {}
    dropped = 0
    for x in tasks:
        key = same_text(ask(x))
        other = kept.setdefault(key, x)
        if other is x:
            continue
        dropped += 1
        a, b = of(other), of(x)
        if a.split == b.split:
            continue
        if mode == "refuse":
            raise TaskSetError(
                f"environment {name}: {b.id} and {a.id} ask the same in splits {b.split} and {a.split}: "
                f"{quoted(ask(x))}; remove "
                'one, split all rows by hash (environment.splits), or set environment.duplicates = "merge", '
                "which keeps the "
                "one in the more protected split"
            )
        if _PROTECTED[b.split] > _PROTECTED[a.split]:
            kept[key] = x
    return list(kept.values()), dropped
