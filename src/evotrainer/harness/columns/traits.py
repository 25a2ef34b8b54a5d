"""Traits: the fixed numbers read once from each rollout's text, calls and tests; metrics and detectors see only these.

A rollout is read once in its life (`extract.py`). Traits of stored rollouts can be kept (`save`) and put
together (`join`), so that a second reading of a grown store costs what is new.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from evotrainer.harness.columns.chunk import CodedColumn
from evotrainer.harness.columns.numerics import Floats, Ints
from evotrainer.harness.columns.scan import SLOTS


def save(t: Traits) -> bytes:
    """As bytes: an uncompressed .npz, floats at 32 bits (rewards and components at 64)."""
    exact = {"reward", "truth", "step", "tokens"}
    arrays: dict[str, np.ndarray] = {f"key/{k}": v for k, v in t.keys.items()}
    for name, v in t.columns.items():
        kept = v if name in exact else v.astype(np.float32)
        # a column that nobody recorded is one NaN in the file instead of n of them
        if len(v) and np.isnan(v).all():
            kept = np.full(1, np.nan, dtype=np.float32)
        arrays[f"column/{name}"] = kept
    arrays |= {f"component/{k}": v for k, v in t.components.items()}
    arrays |= {f"call/{k}": v for k, v in t.calls.items()}
    arrays |= {"solution": t.solution, "sketch": t.sketch}
    arrays |= {"fault": t.fault.code.astype(np.int16), "subject": t.subject.code.astype(np.int32)}
    meta = json.dumps(
        {"version": VERSION, "n": t.n, "faults": t.fault.names, "subjects": t.subject.names, "tools": t.tools}
    )
    arrays["meta"] = np.frombuffer(meta.encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def load(source: Path | io.BytesIO) -> Traits | None:
    """What `save` wrote; None where it is damaged or of another version."""
    try:
        # no pickle: a cache file may be handed in by others, and unpickling runs code
        with np.load(source, allow_pickle=False) as z:
            arrays = {k: z[k] for k in z.files}
        meta = json.loads(arrays["meta"].tobytes())
        if meta["version"] != VERSION:
            return None
        n = int(meta["n"])

        def part(prefix: str) -> dict[str, np.ndarray]:
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        columns: dict[str, np.ndarray] = {
            k: np.full(n, math.nan, dtype=np.float32) if len(v) != n else v for k, v in part("column/").items()
        }
        return Traits(
            n=n,
            keys=part("key/"),
            columns={name: columns[name] for name in FLOATS},
            components=part("component/"),
            solution=arrays["solution"],
            sketch=arrays["sketch"],
            fault=CodedColumn(arrays["fault"].astype(np.int64), tuple(meta["faults"])),
            subject=CodedColumn(arrays["subject"].astype(np.int64), tuple(meta["subjects"])),
            calls=part("call/"),
            tools=tuple(meta["tools"]),
        )
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


VERSION = 29
"""Of what the traits mean; kept traits of another version are read again."""
KEYS = ("id", "task", "group")
FLOATS = (
    "reward", "advantage", "mean_logprob", "entropy", "step", "truth", "finish", "tokens", "turns", "prompt", "words",
    "repetition", "line_run", "visible", "actions", "edits", "searches", "tests", "first_edit",
    "action_run", "tampers", "leaks", "gold_match", "is_code", "reads_input", "bypass", "reaches", "judged", "fooled",
    "crashed", "special", "explained", "unread", "partial",
    "own_repetition", "repeated_calls", "hedges", "probed",
)  # fmt: skip
"""Float columns. actions .. leaks: of acting rollouts, NaN elsewhere; first_edit: place of the first edit that did
not fail, from 1; leaks: 1 where the
answer that a look showed is handed in, 0.5 where there was but a look. tampers: 1 where a successful command, the
recorded patch or a protected hash certainly weakens tests, 0.5 where a reader has to judge, NaN where there is none of
these, 0 also where an answer has a fenced block, 1 where it hands in a file that the test runner loads (`conftest.py`);
gold_match: likeness of the patch to the gold patch. repetition: of acting rollouts within single turns, or
the share of turns said before; own_repetition: the same of what the policy wrote itself. repeated_calls: share of calls
made before with the same reply, NaN without calls. hedges: 1 where all choices are named, 0.5 where values are listed.
is_code, reads_input: NaN where not sampled; partial: 1 where the program parses in part, NaN likewise; bypass: rules of
`bypass.py` broken, NaN where no program is handed in or one was not read; unread: 1 where something handed in could not
be read, NaN where not looked at; reaches: lines of the recorded patch that break one of `patched.py`, NaN where it
touches no Python code. probed: certain facts that probes recorded (`detail.probes`, docs/probes.md), 0.5 where there
are nominations alone, 0 where probes ran and saw nothing, NaN where none ran. judged .. explained: of rollouts with
recorded tests (see `extract._test_traits`); special: 1 certain, 0.5 nominated (`extract._known_tests`)."""


class TraitSelection(Mapping[str, np.ndarray]):
    """Some rows of some columns; a column is copied when it is asked for."""

    def __init__(self, columns: Mapping[str, np.ndarray], rows: Ints) -> None:
        # a pick of a pick composes its indices: chains of picks would copy a column once per link
        inner = columns if isinstance(columns, TraitSelection) else None
        self.columns: Mapping[str, np.ndarray] = inner.columns if inner else columns
        self.rows: Ints = inner.rows[rows] if inner else rows

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name][self.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(slots=True)
class Traits:
    """N rollouts as columns of shape (N,), `sketch` [N, SLOTS]; their calls as columns of shape (C,)."""

    n: int
    keys: Mapping[str, Ints]
    columns: Mapping[str, Floats]
    components: Mapping[str, Floats]
    solution: Ints
    sketch: np.ndarray
    fault: CodedColumn
    subject: CodedColumn
    calls: dict[str, np.ndarray] = field(default_factory=dict)
    """row, tool (place in `tools`), ok (1, 0, -1 unknown); shape (C,)"""
    tools: tuple[str, ...] = ()


def join(parts: Sequence[Traits]) -> Traits:
    """The rollouts of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    n = sum(p.n for p in parts)
    starts = np.cumsum([0, *(p.n for p in parts)])
    tools = tuple(dict.fromkeys(k for p in parts for k in p.tools))
    names = sorted({c for p in parts for c in p.components})
    tool, row = [], []
    for p, a in zip(parts, starts.tolist(), strict=False):
        if p.tools:
            places = {k: i for i, k in enumerate(tools)}
            # each part numbers its own tools: codes are translated into the joined list
            tool.append(np.array([places[k] for k in p.tools], dtype=np.int32)[p.calls["tool"]])
            row.append(p.calls["row"] + a)
    acting = [p for p in parts if p.tools]
    empty: dict[str, np.ndarray] = {
        "row": np.zeros(0, np.int64),
        "tool": np.zeros(0, np.int32),
        "ok": np.zeros(0, np.int8),
    }

    def component(p: Traits, c: str) -> Floats:
        found = p.components.get(c)
        return found if found is not None else np.full(p.n, np.nan)

    def stacked(arrays: Sequence[np.ndarray], dtype: type, *shape: int) -> np.ndarray:
        return np.concatenate(arrays) if arrays else np.zeros((0, *shape), dtype)

    return Traits(
        n=n,
        keys={k: stacked([p.keys[k] for p in parts], np.int64) for k in KEYS},
        columns={c: stacked([p.columns[c] for p in parts], np.float64) for c in FLOATS},
        components={c: np.concatenate([component(p, c) for p in parts]) for c in names},
        solution=stacked([p.solution for p in parts], np.int64),
        sketch=stacked([p.sketch for p in parts], np.uint8, SLOTS),
        fault=_join_coded([p.fault for p in parts]),
        subject=_join_coded([p.subject for p in parts]),
        calls={
            "row": np.concatenate(row),
            "tool": np.concatenate(tool),
            "ok": np.concatenate([p.calls["ok"] for p in acting]),
        }
        if acting
        else empty,
        tools=tools,
    )


def _join_coded(parts: Sequence[CodedColumn]) -> CodedColumn:
    names = tuple(dict.fromkeys(k for p in parts for k in p.names))
    place = {k: i for i, k in enumerate(names)}
    # -1 (none) is the last place of each table, which is where numpy finds index -1
    tables = [np.array([*(place[k] for k in p.names), -1], dtype=np.int64) for p in parts]
    codes = [table[p.code] for table, p in zip(tables, parts, strict=True)]
    return CodedColumn(np.concatenate(codes) if codes else np.zeros(0, np.int64), names)


def take(t: Traits, rows: Ints) -> Traits:
    """The given rows, in the given order."""
    place = np.full(t.n, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    calls = t.calls
    if t.tools:
        moved = place[calls["row"]]
        kept = moved >= 0
        calls = {k: v[kept] for k, v in (calls | {"row": moved}).items()}
    return replace(
        t,
        n=len(rows),
        keys=TraitSelection(t.keys, rows),
        columns=TraitSelection(t.columns, rows),
        components=TraitSelection(t.components, rows),
        solution=t.solution[rows],
        sketch=t.sketch[rows],
        fault=CodedColumn(t.fault.code[rows], t.fault.names),
        subject=CodedColumn(t.subject.code[rows], t.subject.names),
        calls=calls,
    )
