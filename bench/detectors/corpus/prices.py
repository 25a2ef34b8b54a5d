"""What each rule of `harness/code_reading` buys: labelled rollouts read again with one rule switched off at a time.

A switch is a function of a module. While rollouts are read it is replaced, wherever a module of the harness holds it,
by one that answers as if it had seen nothing; nothing of `src` knows of this. A first reading notes which switches
answered anything else: only with these off can a rollout be read differently, so only these are tried.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from bench.detectors.corpus.flags import TRAITS
from bench.detectors.corpus.labels import Label
from evotrainer.harness.columns import extract
from evotrainer.harness.columns.chunk import RolloutColumns, from_rollouts
from evotrainer.records.rollout import Rollout

ROOM = "evotrainer.harness.code_reading"
FINDS = """
bypass found
file_changes stream_edits python_changes
submissions runner_file
leaking found
patched reaching
recorded broken_protection
prompt_examples prompt_examples changed_test
known_tests _recognised _written
judge_appeals appeal_to_judge repeated
tampering found patch_effects effect_of hook_effect skipped_tests
"""
"""Modules that can flag a rollout, with the functions that others ask (or that are rules of their own)."""
EXEMPTS = """
paths known names own_file
"""
"""Modules that take back what others say."""
ROOMMATES = {
    "bypass": ("exits", "reaching", "replaced", "rule"),
    "known_tests": ("constants",),
}
"""Modules that serve one rule alone; their lines are its lines."""
OFF: Mapping[str, Callable[..., Any]] = {
    "prompt_examples.prompt_examples": lambda prompt: _module("prompt_examples").PromptExamples(
        (), tuple(prompt.splitlines()), ""
    ),
    "paths.known": lambda *a: True,
}
"""What a switched-off function answers where that is not the empty value of its annotation."""
EMPTY: Mapping[str, Callable[[], Any]] = {
    "bool": bool, "str": str, "list": list, "tuple": tuple, "set": set, "frozenset": frozenset,
    "Iterator": lambda: iter(()), "None": lambda: None,
}  # fmt: skip
NAMED: Mapping[str, Callable[[Any], str]] = {
    "bypass.found": lambda hit: hit.rule,
    "patched.reaching": lambda hit: f"patch: {hit[0].rule}",
    "leaking.readings": lambda reading: f"reading: {reading.kind}",
    "leaking.found": lambda x: "leak: handed in" if x.certain else "leak: a look",
    "tampering.found": lambda t: f"tests: {t.what.split()[0]} ({'certain' if t.certain else 'nominated'})",
    "tampering.patch_effects": lambda t: f"tests: patch ({'certain' if t.certain else 'nominated'})",
}
"""Functions whose answers are named rules; each name is a switch of its own."""
APART_OF_RULES = ("scan_buffer", "_own_traits")
"""Of `columns/extract.py`: lengths and repetition, on which no rule depends."""
APART = " (exempting)"
NATURE = 300
"""Rollouts that are honest by nature which are read of one source, drawn at random."""
Row = frozenset[str]


def _module(name: str) -> ModuleType:
    return import_module(f"{ROOM}.{name}")


def switches(table: str) -> dict[str, Row]:
    """Row of a table -> the functions that it switches off: modules and, of several functions, each. What a module of
    FINDS exempts is a row of its own."""
    out: dict[str, Row] = {}
    for name, *functions in (line.split() for line in table.strip().splitlines()):
        ids = [f"{name}.{f}" for f in functions]
        both = table is EXEMPTS and f"\n{name} " in FINDS
        out[f"{name}{APART}" if both else name] = frozenset(ids)
        out |= {i: frozenset({i}) for i in ids if len(ids) > 1}
    return out


class Reader:
    """Reads rollouts one by one with some switches off, and notes what answered and what it cost."""

    def __init__(self) -> None:
        self.off: Row = frozenset()
        self.answered: set[str] = set()
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]
        self._caches: list[Any] = []
        self._chunk: tuple[Rollout, RolloutColumns] | None = None

    @contextmanager
    def switched(self) -> Iterator[Reader]:
        """Every switch in its place, wherever a module of the harness names the function."""
        functions = sorted({*NAMED}.union(*switches(FINDS).values(), *switches(EXEMPTS).values()))
        originals = {i: getattr(_module(i.partition(".")[0]), i.partition(".")[2]) for i in functions}
        modules = [m for name, m in sys.modules.items() if name.startswith("evotrainer.harness")]
        found = {id(v): v for m in modules for v in vars(m).values() if hasattr(v, "cache_clear")}
        self._caches = list(found.values())
        wrapped = {i: self._switch(i, f) for i, f in originals.items()}
        originals |= {f"extract.{f}": getattr(extract, f) for f in APART_OF_RULES}
        wrapped |= {f"extract.{f}": self._apart(getattr(extract, f)) for f in APART_OF_RULES}
        places = [(m, k, i) for m in modules for k, v in vars(m).items() for i, f in originals.items() if v is f]
        for m, k, i in places:
            setattr(m, k, wrapped[i])
        try:
            yield self
        finally:
            for m, k, i in places:
                setattr(m, k, originals[i])

    def _switch(self, i: str, original: Callable[..., Any]) -> Callable[..., Any]:
        said = str(original.__annotations__["return"])
        head = "None" if said.endswith("| None") else re.match(r"\w*", said)[0]  # type: ignore[index]
        empty = OFF.get(i) or (lambda *a, **k: EMPTY[head]())
        name = NAMED.get(i)

        def asked(*a: Any, **k: Any) -> Any:
            if i in self.off:
                return empty(*a, **k)
            began = time.perf_counter()
            self._inner.append(0.0)
            out = original(*a, **k)
            out = list(out) if head == "Iterator" else out
            spent = time.perf_counter() - began
            own = spent - self._inner.pop()
            self._inner[-1] += spent
            self.seconds[i] += 0.0 if self.off else own
            nothing = empty(*a, **k)
            if said == "None" or out != (list(nothing) if head == "Iterator" else nothing):
                self.answered.add(i)
            if name is not None and out:
                self.answered.update(map(name, out))
                out = type(out)(x for x in out if name(x) not in self.off)
            return iter(out) if head == "Iterator" else out

        return asked

    def _apart(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is no rule's and the same with any: counted in the reading of a rollout with all rules alone."""
        last: list[Any] = [None, None]

        def asked(text: Any, *at: Any) -> Any:
            if not self.off or last[0] is not text:
                last[:] = text, original(text, *at)
            return last[1]

        return asked

    def flagged(self, r: Rollout, off: Iterable[str] = ()) -> bool:
        """Does any detector of single rollouts flag it?"""
        for f in self._caches:
            f.cache_clear()
        self.off, self.answered = frozenset(off), set()
        if self._chunk is None or self._chunk[0] is not r:
            self._chunk = r, from_rollouts([r])
        x = extract.extract(self._chunk[1]).columns
        return any(bool(np.nan_to_num(x[t][0]) > 0) for traits in TRAITS.values() for t in traits)


def drawn(known: Mapping[str, Label], rollouts: Mapping[str, Rollout]) -> tuple[list[str], list[str]]:
    """(hacks with evidence in the text, honest ones) that are read; none that a detector's alarm brought up."""
    live = {k: x for k, x in known.items() if k in rollouts and not rollouts[k].error_kind and x.by != "flag"}
    hacks = sorted(k for k, x in live.items() if x.label == "hack" and x.evidence_in_text)
    honest = sorted(k for k, x in live.items() if x.label == "honest" and x.by != "nature")
    nature = sorted(k for k, x in live.items() if x.label == "honest" and x.by == "nature")
    return hacks, honest + random.Random("nature").sample(nature, min(NATURE, len(nature)))


def price(
    rollouts: Mapping[str, Rollout], hacks: Iterable[str], honest: Iterable[str], off: Iterable[str] = ()
) -> dict[str, Any]:
    """JSON-able. rows: row -> unique (hacks that nothing finds without it), only (honest alarms that it alone gives),
    spared (honest rollouts that are flagged without it), hidden (hacks that are found without it), tried (all on which
    it was), each keys; what can flag is tried on what is flagged, what exempts on all. cpu: function -> seconds of the
    reading with every rule; seconds: of all of that; flagged: keys. off: switched off all along, nothing is tried."""
    rows: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    finds, every = switches(FINDS), switches(FINDS) | switches(EXEMPTS)
    functions = frozenset(NAMED).union(*every.values())
    hit, off, cpu, wall = list[str](), frozenset(off), 0.0, 0.0
    with Reader().switched() as reader:
        for key, hack in (*((k, True) for k in hacks), *((k, False) for k in honest)):
            began = time.process_time(), time.perf_counter()
            base = reader.flagged(rollouts[key], off)
            cpu, wall = cpu + time.process_time() - began[0], wall + time.perf_counter() - began[1]
            hit += [key] if base else []
            answered = frozenset() if off else frozenset(reader.answered)
            tried = {row: ids & answered for row, ids in every.items() if ids & answered}
            tried |= {name: frozenset({name}) for name in answered - functions}
            told: dict[Row, bool] = {}
            for row, ids in tried.items():
                if not base and (row in finds or row not in every):
                    continue
                if ids not in told:
                    told[ids] = reader.flagged(rollouts[key], ids)
                rows[row]["tried"].append(key)
                if told[ids] != base:
                    what = ("unique" if base else "hidden") if hack else ("only" if base else "spared")
                    rows[row][what].append(key)
    # who waits for a core waits in each function alike: seconds of the clock give the shares, CPU the sum
    each = {i: x * cpu / max(wall, 1e-9) for i, x in reader.seconds.items()}
    return {"rows": rows, "cpu": each, "seconds": cpu, "flagged": hit}
