"""`evotrainer audit --run`: programs of rollouts are run, each on the visible tests that it was shown."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evotrainer.errors import SandboxError
from evotrainer.harness.code_reading.blocks import blocks
from evotrainer.harness.code_reading.prompt_examples import prompt_examples
from evotrainer.harness.code_reading.recorded import shown_tests
from evotrainer.harness.code_reading.submissions import answering, submission
from evotrainer.harness.columns.traits import Traits
from evotrainer.program_probes import UNKNOWN, ProbedProgram, VisibleTest, probe_programs
from evotrainer.records import regular_file
from evotrainer.records.asserts import asserted
from evotrainer.records.durable import replace_synced
from evotrainer.records.output import Progress
from evotrainer.records.probes import VERSION, ProgramProbes, nothing_ran
from evotrainer.records.rollout import Rollout, completion_of, prompt_of
from evotrainer.records.text import clean
from evotrainer.sandbox import Sandbox
from evotrainer.studies.audit.units import OpenedSource

BLOCK = 64
"""Programs that are handed to the sandbox at once."""
MAX_GIVEN = 20_000
"""Characters of an input that is tried."""
MOST = 2000
"""Rollouts of an audit whose programs are run, chosen by a hash: the same ones at every audit."""
TIERS = "ABC"
"""Sandboxes that keep foreign programs from the network, other processes and the files of others."""
RUNS_FIRST = ("conftest.py", "sitecustomize.py", "usercustomize.py")
"""Files that Python or pytest loads unasked."""
_READS = re.compile(r"\binput\s*\(|\bstdin\b|open\(0|fileinput|os\.read\(0|raw_input")
_ASSERT = re.compile(r"^[ \t#>`*-]{0,12}(assert [^\n]{3,2000})$", re.MULTILINE)
_DOCTEST = re.compile(r">>>[ \t]*(\w+\([^\n]{0,1000}\))[ \t]*\n[ \t]*([^\n>]{1,1000})")
_DEFINES = re.compile(r"\bdef\s+(\w+)\s*\(|`(\w+)(?:\([^`\n]*\))?`")
_UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def probed_program(r: Rollout) -> ProbedProgram | str:
    """The program that a rollout answers with and the visible tests that it was shown; why there is none to run."""
    completion = completion_of(r.turns)
    programs = answering(completion, r.turns)
    if not programs:
        other = next((b.language for b in blocks(completion) if b.language and not b.python), "")
        return f"language not run: {clean(other, 30)}" if other else "no program is handed in"
    source = programs[-1].block.text
    try:
        functions = _functions(ast.parse(source))
    except _UNREADABLE:
        return "it is no Python that parses"
    called = [x for x in _asserted(r) if x[0] in functions or x[0] == "candidate"]
    names = [name for name, _, _ in called if name != "candidate"]
    entry = names[0] if names else "" if not called and _READS.search(source) else _entry(r, functions)
    shown: list[tuple[str, str | None]]
    if called:
        shown = [(given, wanted) for name, given, wanted in called if name in (entry, "candidate")]
    else:
        full = _full_inputs(r)
        every = [t for t in shown_tests(r) if not t.hidden]
        shown = [(full.get(t.input, t.input), t.expected if t.judged else None) for t in every]
        shown = shown or [(x, y or None) for x, y in prompt_examples(prompt_of(r.turns)).pairs]
    tests = list(_tests(shown, functions[entry] if entry else None))
    files = tuple(b.text for b in submission(completion).files if b.name.rpartition("/")[2] in RUNS_FIRST)
    if not tests and not files and not entry:
        return "no visible test that could be run is known"
    return ProbedProgram(source, "call" if entry else "stdin", tuple(tests), entry, files=files)


def _functions(tree: ast.Module) -> dict[str, tuple[int, int]]:
    """Functions at the top, and methods of a class `Solution` -> (least, most) arguments."""
    out: dict[str, tuple[int, int]] = {}
    for n in tree.body:
        inside = n.body if isinstance(n, ast.ClassDef) and n.name == "Solution" else ()
        for f, own in ((n, 0), *((m, 1) for m in inside)):
            if isinstance(f, ast.FunctionDef) and f.name != "__init__":
                most = len(f.args.posonlyargs) + len(f.args.args) - own
                out[f.name] = (most - len(f.args.defaults), 99 if f.args.vararg else most)
    return out


def _entry(r: Rollout, functions: Mapping[str, Any]) -> str:
    """The function that is asked for: as recorded, as the prompt names it, else the last one; empty without any."""
    entry = r.detail.get("entry_point")
    named = [a or b for a, b in _DEFINES.findall(prompt_of(r.turns)[:MAX_GIVEN])][::-1]
    return next((n for n in (entry, *named, *reversed(list(functions))) if isinstance(n, str) and n in functions), "")


def _asserted(r: Rollout) -> Iterator[tuple[str, str, str]]:
    """(function, arguments, value) of the assertions and doctests of the prompt, and of test code that is recorded as
    visible."""
    prompt, given = prompt_of(r.turns), r.detail.get("test")
    lines = [m[1] for m in _ASSERT.finditer(prompt)] + [f"assert {c} == {w}" for c, w in _DOCTEST.findall(prompt)]
    for code in (*lines, given if isinstance(given, str) else ""):
        yield from asserted(code)


def _tests(shown: Sequence[tuple[str, str | None]], takes: tuple[int, int] | None) -> Iterator[VisibleTest]:
    """Tests of a script (`takes` is None), or of a function that takes so many arguments, where they can be read."""
    distinct: dict[str, str | None] = {}
    for given, wanted in shown:
        distinct.setdefault(given, wanted)
    for given, wanted in distinct.items():
        if not given or len(given) > MAX_GIVEN:
            continue
        if takes is None:
            yield VisibleTest(given.rstrip("\n") + "\n", UNKNOWN if wanted is None else wanted)
        elif (args := _arguments(given, takes)) is not None:
            yield VisibleTest(args, UNKNOWN if wanted is None else _value(wanted))


def _full_inputs(r: Rollout) -> dict[str, str]:
    """Inputs as `shown_tests` cuts them -> as they are recorded."""
    rows = r.detail.get("tests")
    texts = [t.get("input") for t in rows if isinstance(t, Mapping)] if isinstance(rows, list | tuple) else []
    return {x.strip()[:500]: x for x in texts if isinstance(x, str)}


def _arguments(text: str, takes: tuple[int, int]) -> list[Any] | None:
    for spelling in (f"({text},)", f"[{', '.join(text.splitlines())}]"):
        try:
            args = list(ast.literal_eval(spelling))
        except _UNREADABLE:
            continue
        if takes[0] <= len(args) <= takes[1]:
            return args
    return None


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except _UNREADABLE:
        return text


def probe_rollouts(
    some: Sequence[Rollout], sandbox: Callable[[], Sandbox], kept: Path | None = None, say: Progress | None = None
) -> list[ProgramProbes]:
    """What the probes say of each rollout. Equal programs with equal tests are run once; `kept`: folder of earlier
    records."""
    tell = partial(say or (lambda what, done, of: None), "running programs")
    found: dict[str, ProgramProbes] = {}
    todo: dict[str, ProbedProgram] = {}
    keys: list[str] = []
    for r in some:
        program = probed_program(r)
        if isinstance(program, str):
            key, found[program] = program, nothing_ran(program)
        else:
            content = repr((VERSION, astuple(program))).encode("utf-8", "surrogatepass")
            key = hashlib.blake2b(content, digest_size=16).hexdigest()
            if key not in found and (known := _known(kept, key)) is not None:
                found[key] = known
            elif key not in found:
                todo[key] = program
        keys.append(key)
    names = list(todo)
    for a in range(0, len(names), BLOCK):
        tell(a, len(names))
        block = names[a : a + BLOCK]
        for key, record in zip(block, probe_programs(sandbox(), [todo[k] for k in block]), strict=True):
            found[key] = record
            # what the sandbox may have caused is tried again the next time
            if kept is not None and not any(why.startswith("the sandbox") for why in record.not_run.values()):
                _place(kept, key).parent.mkdir(parents=True, exist_ok=True)
                replace_synced(_place(kept, key), json.dumps(record.plain()).encode())
    return [found[k] for k in keys]


def _place(kept: Path, key: str) -> Path:
    return kept / key[:2] / f"{key}.json"


def _known(kept: Path | None, key: str) -> ProgramProbes | None:
    try:
        record = ProgramProbes.of(json.loads(regular_file.read_text(_place(kept, key)))) if kept else None
    except (OSError, ValueError):
        return None
    return record if record and (record.ran or record.not_run) else None


@dataclass(frozen=True, slots=True)
class ProgramsRun:
    """Of one source: rollouts that were tried, those whose program ran, with certain facts, and nominated ones."""

    tried: int
    of: int
    ran: int
    facts: int
    nominated: int
    not_run: Mapping[str, int] = field(default_factory=dict)
    """Why the others could not be run -> how many; the commonest reasons first."""
    cpu_s: float = 0.0


class ProgramRunner:
    """Runs programs of an audit's sources; the sandbox is opened for the first program. `kept`: folder of earlier
    records."""

    def __init__(self, kept: Path | None, most: int = MOST) -> None:
        self.kept, self.left = kept, most
        self._box: Sandbox | None = None

    def sandbox(self) -> Sandbox:
        """SandboxError where this machine has none that confines foreign programs."""
        if self._box is None:
            box = Sandbox.open()
            if box.tier not in TIERS:
                box.close()
                raise SandboxError(
                    f"--run: this machine's sandbox is tier {box.tier}, and foreign programs need A, B or C; install "
                    "bubblewrap (`evotrainer doctor` says what is missing), or audit without --run"
                )
            self._box = box
        return self._box

    def probe(self, whole: OpenedSource, traits: Traits, say: Progress) -> tuple[Traits, ProgramsRun]:
        """The traits with what the probes saw; `whole` shows the facts from now on."""
        rows = np.sort(np.unique(traits.keys["id"], return_index=True)[1]) if traits.n else np.zeros(0, np.int64)
        rows = rows[traits.fault.code[rows] < 0]
        many = len(rows)
        if many > self.left:
            keys = zip(whole.column("id", rows.tolist()), whole.column("task", rows.tolist()), strict=True)
            order = [hashlib.blake2b(f"{i}\x1f{t}".encode(errors="replace")).digest() for i, t in keys]
            rows = np.sort(rows[np.argsort(np.array(order))[: self.left]])
        self.left -= len(rows)
        some = rows.tolist()
        records = probe_rollouts(whole.rollouts(some), self.sandbox, self.kept, say)
        column = np.array(traits.columns["probed"], dtype=np.float64)
        for i, record in zip(some, records, strict=True):
            if record.ran:
                whole.probes[i] = record.plain()
                column[i] = record.trait
        why = Counter(next(iter(r.not_run.values()), "") for r in records if not r.ran)
        ran = ProgramsRun(
            tried=len(some),
            of=many,
            ran=sum(bool(r.ran) for r in records),
            facts=sum(bool(r.certain) for r in records),
            nominated=sum(bool(r.facts) and not r.certain for r in records),
            not_run=dict(why.most_common()),
            cpu_s=sum(r.cpu_s for r in {id(r): r for r in records}.values()),
        )
        return replace(traits, columns={**traits.columns, "probed": column}), ran

    def close(self) -> None:
        """Stop the sandbox."""
        if self._box is not None:
            self._box.close()
            self._box = None
