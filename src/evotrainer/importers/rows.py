"""The reader of rows with named columns, of whichever tool: JSON lines, one JSON value, CSV, TSV or Parquet.

`forms` says which column is which field. Three things hold in every form: a line whose columns are lists of one length
is that many rows; JSON inside a string is opened where a conversation or a mapping belongs; and `--map` names columns
that no form knows. What comes out is a record of the plain form, read by `jsonl`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.importers import lines
from evotrainer.importers.base import HEAD, Importer, LogFormat, Skipped, Source
from evotrainer.importers.common import digest
from evotrainer.importers.forms import FORMS, GIVEN, LISTS, NUMBERS, Form, Row, base_name
from evotrainer.importers.jsonl import FIELDS, INTS, SCALARS, TASKS, TEXTS, VERDICTS, RecordReader, is_plain
from evotrainer.importers.lenient_json import (
    BLANK,
    FIRST_LINES,
    SPAN,
    TORN,
    conversation,
    from_text,
    number,
    opened,
    read_json,
)
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import cut

TABLES = (".csv", ".tsv")
ORDER = (*TASKS, "prompt", *TEXTS, *VERDICTS, "components")
"""Of fields in what is said of them."""
PAID_ROWS = 200
"""Lines from whose advantages it is read which components were paid."""


class RowImporter(LogFormat):
    """The importer of one form."""

    def __init__(self, form: Form) -> None:
        self.form, self.name, self.about = form, form.name, form.about
        self.asked = 1200 if form.name == "table" else 1000
        self.names = "id" if base_name(form.name) == "jsonl" else ""
        self.by_lines, self.joined = not form.lists and not form.keyed, form.joined
        # columns of the texts, and of the fields that are no lists
        self._texts, self._scalars = (
            [c for to, column in form.names.items() if to in fields for c in _heads(column)]
            for fields in (TEXTS, SCALARS)
        )

    def one_reading(self, path: Path) -> Path | None:
        """Of a tool that writes a folder a step, the folder of all steps."""
        folder = path.resolve().parent
        return folder.parent if self.form.series and re.match(self.form.series, folder.name) else None

    def recognises(self, source: Source) -> bool:
        """Does the first line that holds rows have the form's columns, as it stands or split into its rows?"""
        found = self._opening(source)
        return bool(found) and (self.form.fits(found[0][0]) or self.form.fits(found[0][1]))

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """One rollout a row."""
        reader = RecordReader(path, self.form.has_text, path.resolve().parent.name if self.form.one_each else "")
        paid = self._paid(path) if self.form.summed else None

        def rollout(r: Row, n: Any) -> Rollout | str:
            if missing := [c for c in self.form.given if all(x not in r for x in (c, *_heads(c)))]:
                return f"it has no {', '.join(missing)}, which --map names; its columns are {cut(', '.join(r), 200)}"
            record = Translation(self.form, r, path).record
            if paid is not None and "reward" not in record:
                known = [v for c in paid if (v := record.get("components", {}).get(c)) is not None]
                record["reward"] = sum(known) if known else None
            return reader.rollout(record, n)

        return lines.convert_all(path, self._values(path), rollout, self._rows)

    def opening(self, source: Source) -> Row | None:
        """The first row; a column that is empty there has the first value of the next rows."""
        found = self.beginning(source)
        return (
            {k: next((r[k] for r in found if r.get(k) is not None), v) for k, v in found[0].items()} if found else None
        )

    def beginning(self, source: Source) -> list[Row]:
        """The first rows of a source."""
        return [row for _, row in self._opening(source, FIRST_LINES)]

    def _opening(self, source: Source, most: int = 1) -> list[tuple[Row, Row]]:
        """(the line, its row) of the first rows; a line that holds none, as it is empty or uneven, is passed over."""
        out: list[tuple[Row, Row]] = []
        try:
            for value in self._firsts(source):
                rows = self._rows(value) if isinstance(value, dict) else ""
                out += [(value, row) for row in rows if not isinstance(row, str)]
                if len(out) >= most:
                    break
        except Exception:  # whatever a foreign file holds
            pass
        return out

    def _firsts(self, source: Source) -> Iterator[Any]:
        """The first values of a source."""
        if source.head[:4] == b"PAR1" or source.path.suffix.lower() in TABLES:
            yield from (v for _, v in islice(self._values(source.path), FIRST_LINES))
        elif isinstance(value := source.first, list):
            yield from value[:FIRST_LINES]
        elif isinstance(value, dict):
            yield value
            yield from (v for _, v in islice(lines.values(source.path, constants=True), FIRST_LINES) if v != value)

    def _rows(self, value: Row) -> list[Row] | str:
        """The rows of an object, or why it has none."""
        out: list[Row] = []
        found = _listed(value, self.form.lists.split(".*")[:-1]) if self.form.lists else [value]
        if (key := self.form.keyed) and key not in value:
            found = [{key: k, **v} for k, v in value.items() if isinstance(v, dict)]
        for r in found:
            split = lines.split_columns(r, self._texts, self._scalars)
            if isinstance(split, str):
                return split
            out += [r] if split is None else split
        if (agent := self.form.agent) and len({str(r.get(agent)) for r in out}) > 1:
            out = [{**r, "as": r.get(agent)} for r in out]
        return [self.form.shape(r) for r in out] if self.form.shape else out

    def _values(self, path: Path) -> Iterator[tuple[int, Any]]:
        """(place, value) of each record of the file."""
        if path.suffix.lower() in TABLES:
            return _cells(path)
        if Source(path).head[:4] == b"PAR1":
            return lines.columns(path)
        first = next(lines.lines(path), (0, b""))[1] or b""
        # an object over several lines is the whole file
        if (self.form.lists or self.form.keyed) and first.lstrip(BLANK)[:1] == b"{" and first.rstrip()[-1:] != b"}":
            return iter([(1, _one_value(path))])
        return lines.values(path, constants=True)

    def _paid(self, path: Path) -> list[str]:
        """The components whose sum is the reward, by the first rows' advantages."""
        from evotrainer.importers.formats.trl import Grouped, agreeing

        groups: Grouped = {}
        known: list[tuple[Row, Row, Row]] = []
        token = SPAN.set(None)  # by the first lines of the file, whichever stretch of it is read
        try:
            for _, value in islice(self._values(path), PAID_ROWS):
                rows = self._rows(value) if isinstance(value, dict) else ()
                for r in () if isinstance(rows, str) else rows:
                    record = Translation(self.form, r, path).record
                    known.append((r, record, record.get("components", {})))
        finally:
            SPAN.reset(token)
        # of all these rows: a function need not apply to the first one; in the order of the file's columns
        applied = {c for _, _, components in known for c in components}
        names = list(dict.fromkeys(c for r, _, components in known for c in (*r, *components) if c in applied))
        for _, record, components in known:
            if (advantage := number(record.get("advantage"))) is not None:
                key = (record.get("step"), hash(str(record.get("prompt"))))
                groups.setdefault(key, []).append(([number(components.get(c)) for c in names], advantage))
        return agreeing(groups, names)


def mapped(name: str) -> RowImporter:
    """The importer of a format with the user's names of columns, `FORMAT --map FIELD=COLUMN,...`."""
    base = base_name(name)
    if base not in ("jsonl", "table", *FORMS):
        raise ConfigError(f"--map: {base} is no format of rows with columns; give --map without --format")
    form, names = FORMS.get(base) or _plain_form(name), read_map(name.removeprefix(base + GIVEN))
    own = {k: v for k, v in form.names.items() if not any({k, f} <= {*same} for f in names for same in (TASKS, TEXTS))}
    components = names.pop("components", form.components)
    return RowImporter(replace(form, name=name, names=own | names, components=components, given=tuple(names.values())))


def read_as(importer: Importer, source: Source) -> str:
    """What of the first row is read as what, `task <- problem_id, ...; not read: ...`; empty for other formats."""
    by = importer if isinstance(importer, RowImporter) else PLAIN_TABLE if importer.name == "jsonl" else None
    row = by.opening(source) if by else None
    return f"{Translation(by.form, row, source.path).summary()}{_twice(source)}" if by and row else ""


def _twice(source: Source) -> str:
    """Keys that stand more than once in the first record: parsers take the last and say nothing."""
    pairs: list[list[str]] = []
    try:
        json.loads(source.head.split(b"\n", 1)[0], object_pairs_hook=lambda found: pairs.append([k for k, _ in found]))
    except (ValueError, RecursionError):
        return ""
    twice = sorted({k for keys in pairs for k in keys if keys.count(k) > 1})
    return f"; twice in one record, so the last one counts: {', '.join(twice)}" if twice else ""


def read_map(given: str) -> dict[str, str]:
    """Field -> column of `FIELD=COLUMN,...`; ConfigError where it cannot be understood."""
    out: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in given.split(","))):
        to, sign, column = (x.strip() for x in part.partition("="))
        if not sign or not to or not column:
            raise ConfigError(f"--map {part}: give FIELD=COLUMN, e.g. --map task=problem_id,text=response")
        if to not in FIELDS:
            near = [f"{column}={to}"] if column in FIELDS else get_close_matches(to, FIELDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(sorted(FIELDS))}"
            raise ConfigError(f"--map {part}: {to} is no field of a rollout; {hint}")
        if out.setdefault(to, column) != column:
            raise ConfigError(f"--map: {to} is to be both {out[to]} and {column}; give a field one column")
    return out


class Translation:
    """One row as a record of the plain form."""

    def __init__(self, form: Form, row: Row, path: Path) -> None:
        self.row = row
        self.read: dict[str, str] = {}
        """Field -> column it was read from, with what was done to it."""
        self.used: set[str] = set()
        out: Row = {}
        for to, column in form.names.items():
            value = self._look(to, column)
            if value is not None and (value := self._fitting(to, value)) is not None:
                out[to] = value
        self.tags = {t: str(v) for t in form.tags if isinstance(v := row.get(t), str | int) and v != ""}
        self.used |= self.tags.keys()
        if form.components and (found := self._components(form.components)):
            out["components"] = found
        for to, pattern in form.folders.items():
            hits = [hit[1] for folder in path.resolve().parts[:-1] if (hit := re.search(pattern, folder))]
            if hits and to not in out:
                out[to] = int(hits[-1]) if to in INTS else hits[-1]
        if form.benchmark and "task" in out:
            hit = re.search(form.benchmark, "/".join(path.resolve().parts[-2:]))
            where = hit[1] if hit else next((digest(v)[:8] for c in form.question.split("|") if (v := row.get(c))), "")
            out["task"] = f"{where}/{out['task']}"
        out["detail"] = {k: v for k, v in row.items() if k not in self.used} | (out.get("detail") or {})
        if self.tags:
            out["detail"]["tags"] = self.tags
        self.record = out

    def _look(self, to: str, column: str) -> Any:
        for choice in column.split("|"):
            # a column without a value is that row's: what stands beside the list of a row is of another one
            if choice in self.row and self.row[choice] is None:
                return None
            parts = [(c, v) for c in choice.split("+") if (v := _at(self.row, c)) is not None and v != ""]
            if parts:
                self.used |= {_head(self.row, c) for c, _ in parts}
                self.read[to] = " + ".join(c for c, _ in parts)
                return parts[0][1] if len(parts) == 1 else "/".join(str(v) for _, v in parts)
        return None

    def _fitting(self, to: str, value: Any) -> Any:
        """A value in the form that the plain reader takes; None for what says nothing."""
        if to in TEXTS or to == "prompt":
            talk = conversation(value)
            if talk is not value:
                self.read[to] += " (JSON opened)"
            return talk
        if to in TASKS:
            return digest(value) if isinstance(value, dict | list) else value
        if to == "reward" and isinstance(value, list):
            # one number a token or a turn
            found = [x for v in value if isinstance(v, int | float) and (x := number(v)) is not None]
            self.read[to] += " (summed)"
            return sum(found) if found and len(found) == len(value) else value
        if to in INTS:
            x = number(value) if not isinstance(value, bool) else None
            # a count of no tokens beside a text is one that nobody counted
            return None if to == "tokens" and not x else int(x) if x is not None and x == int(x) else value
        if isinstance(value, str) and to in VERDICTS and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        return number(value) if to == "correct" and isinstance(value, str) else value

    def _components(self, columns: str) -> dict[str, float | None]:
        out: dict[str, float | None] = {}
        for column in columns.split("+"):
            value = _at(self.row, column)
            held = _object(value) if isinstance(value, str) else value
            if isinstance(held, dict):
                self.used.add(_head(self.row, column))
                self.read["components"] = column + (" (JSON opened)" if held is not value else "")
                # how many turns there were pays nobody
                paid = {str(k): v for k, v in held.items() if not str(k).startswith("num_")}
                out |= {k: number(v) for k, v in paid.items() if isinstance(v, int | float | None)}
                continue
            # numbers in words, and what says nothing here, count where the user names the column
            out |= {
                k: number(v)
                for k, v in self.row.items()
                if k not in self.used and fnmatchcase(k, column)
                if (isinstance(v, int | float) if column == NUMBERS else v is None or number(v) is not None)
            }
        if out and "components" not in self.read:
            self.used |= out.keys()
            self.read["components"] = " + ".join(out)
        return out

    def summary(self) -> str:
        """`task <- problem_id, text <- completion (JSON opened), ...; not read: ...`."""
        read = sorted(self.read.items(), key=lambda x: ORDER.index(x[0]) if x[0] in ORDER else len(ORDER))
        columns = [to if to == column else f"{to} <- {column}" for to, column in read]
        columns += [f"tags <- {' + '.join(self.tags)}"] if self.tags else []
        left = [k for k in self.row if k not in self.used]
        return cut(", ".join(columns), 300) + (f"; not read: {cut(', '.join(left), 200)}" if left else "")


def _cells(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, row) of a CSV or TSV file."""
    with opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", "replace", newline="") as f:
        head = f.readline(HEAD)
        f.seek(0)
        # the usual one first, which has it where none is more often there
        usual = "\t" if path.suffix.lower() == ".tsv" else ","
        reader = csv.DictReader(f, delimiter=max(f"{usual},;\t|", key=head.count), strict=True)
        names = reader.fieldnames or []
        if twice := sorted(n for n, times in Counter(names).items() if times > 1):
            yield 1, Skipped(str(path), f"two columns are called {twice[0]}; rename one")
            return
        try:
            for row in reader:
                if None in row:
                    yield reader.line_num, Skipped(f"{path} line {reader.line_num}", "more cells than columns")
                else:
                    yield reader.line_num, {k: v or None for k, v in row.items()}
        except (csv.Error, *TORN) as e:
            yield reader.line_num, Skipped(f"{path} line {reader.line_num}", f"no CSV from here on: {e}")


def _one_value(path: Path) -> Any:
    try:
        return read_json(path)
    except ValueError as e:
        return Skipped(str(path), f"no whole JSON value: {e}; was it cut off while written or copied?")


def _heads(column: str) -> list[str]:
    return [c.split(".")[0] for c in re.split(r"[|+]", column)]


def _head(row: Row, column: str) -> str:
    return column if column in row else column.split(".")[0]


def _at(row: Any, column: str) -> Any:
    """The value of a column or of a path into one."""
    if column in row:
        return row[column]
    value = row
    for part in column.split("."):
        value = _object(value) if isinstance(value, str) else value
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and re.fullmatch(r"-?\d{1,6}", part):
            value = value[int(part)] if -len(value) <= int(part) < len(value) else None
        else:
            return None
    return value


def _object(text: str) -> Any:
    """JSON inside a string; None for other words."""
    return from_text(text) if text[:1] in ("{", "[") else None


def _listed(value: Row, steps: list[str]) -> list[Row]:
    """The rows of lists within lists; each with what stands beside its list, where it has no such column itself."""
    if not steps:
        return [value]
    names = steps[0].strip(".").split("|")
    name = next((n for n in names if isinstance(x := value.get(n), list) and x and isinstance(x[0], dict)), None)
    if name is None:
        return _listed(value, steps[1:])
    around = {k: v for k, v in value.items() if k != name}
    return [row for x in value[name] if isinstance(x, dict) for row in _listed({**around, **x}, steps[1:])]


def _plain_form(name: str) -> Form:
    own = {k: k for k in sorted(FIELDS) if k != "components"}
    return Form(name, "rows with columns that were given", is_plain, own, components="components", lists=f"{LISTS}.*")


PLAIN_TABLE = RowImporter(replace(_plain_form("table"), about="CSV, Parquet, or a JSON object with a list of records"))
"""The plain form in CSV, TSV, Parquet, or in the one list of a JSON object."""
SHIPPED: Mapping[str, RowImporter] = {**{name: RowImporter(form) for name, form in FORMS.items()}, "table": PLAIN_TABLE}
