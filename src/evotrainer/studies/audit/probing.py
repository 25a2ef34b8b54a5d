"""Programs of rollouts, run: which program answers, what it was shown, and what the probes say (`audit --run`)."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.harness.code_reading.blocks import blocks
from evotrainer.harness.code_reading.handed_in import answering, handed_in
from evotrainer.harness.code_reading.prompt_examples import prompt_examples
from evotrainer.harness.code_reading.visible_tests import shown_tests
from evotrainer.program_probes import (
    UNKNOWN,
    VERSION,
    ProbedProgram,
    ProbeRecord,
    VisibleTest,
    asserted,
    nothing_ran,
    parsed,
    probe_programs,
)
from evotrainer.records import regular_file
from evotrainer.records.durable import replace_synced
from evotrainer.records.output import Progress
from evotrainer.records.rollout import Rollout, completion_of, prompt_of
from evotrainer.records.text import clean
from evotrainer.sandbox import Sandbox

BLOCK = 64
"""Programs that are handed to the sandbox at once."""
MAX_GIVEN = 20_000
"""Characters of an input that is tried."""
RUNS_FIRST = ("conftest.py", "sitecustomize.py", "usercustomize.py")
"""Files that Python or pytest loads unasked."""
_READS = re.compile(r"\binput\s*\(|\bstdin\b|open\(0|fileinput|os\.read\(0|raw_input")
_ASSERT = re.compile(r"^[ \t#>`*-]{0,12}(assert [^\n]{3,2000})$", re.MULTILINE)
_DOCTEST = re.compile(r">>>[ \t]*(\w+\([^\n]{0,1000}\))[ \t]*\n[ \t]*([^\n>]{1,1000})")
_DEFINES = re.compile(r"\bdef\s+(\w+)\s*\(|`(\w+)(?:\([^`\n]*\))?`")


def probed_program(r: Rollout) -> ProbedProgram | str:
    """The program that a rollout answers with and the visible tests that it was shown; why there is none to run."""
    completion = completion_of(r.turns)
    programs = answering(completion, r.turns)
    if not programs:
        other = next((b.language for b in blocks(completion) if b.language and not b.python), "")
        return f"language not run: {clean(other, 30)}" if other else "no program is handed in"
    source = programs[-1].block.text
    if (tree := parsed(source)) is None:
        return "it is no Python that parses"
    functions = _functions(tree)
    called = [(name, t) for name, t in _asserted(r) if name in functions or name == "candidate"]
    if called:
        names = [name for name, _ in called if name != "candidate"]
        entry = names[0] if names else _entry(r, functions)
        tests = [t for name, t in called if name in (entry, "candidate")] if entry else []
    else:
        stdin = _READS.search(source) is not None
        entry = "" if stdin else _entry(r, functions)
        tests = list(_recorded(r, functions.get(entry)))
    files = tuple(b.text for b in handed_in(completion).files if b.name.rpartition("/")[2] in RUNS_FIRST)
    if not tests and not files and not entry:
        return "no visible test that could be run is known"
    distinct = {repr(t.given): t for t in reversed(tests)}
    return ProbedProgram(source, "call" if entry else "stdin", tuple(reversed(distinct.values())), entry, files=files)


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
    said = r.detail.get("entry_point") if isinstance(r.detail, Mapping) else None
    if isinstance(said, str) and said in functions:
        return said
    named = [a or b for a, b in _DEFINES.findall(prompt_of(r.turns)[:MAX_GIVEN])]
    return next((n for n in reversed(named) if n in functions), next(reversed(list(functions)), ""))


def _asserted(r: Rollout) -> Iterator[tuple[str, VisibleTest]]:
    """(function, test) of the assertions and doctests of the prompt, and of test code that is recorded as visible."""
    prompt = prompt_of(r.turns)
    detail = r.detail if isinstance(r.detail, Mapping) else {}
    for line in (m[1] for m in _ASSERT.finditer(prompt)):
        yield from asserted(line)
    for call, wanted in _DOCTEST.findall(prompt):
        yield from asserted(f"assert {call} == {wanted}")
    given = detail.get("test")
    yield from asserted(given) if isinstance(given, str) else ()


def _recorded(r: Rollout, takes: tuple[int, int] | None) -> Iterator[VisibleTest]:
    """Visible tests that are recorded, else those of the prompt; of functions those whose arguments can be read."""
    shown = [t for t in shown_tests(r) if not t.hidden] or list(prompt_examples(prompt_of(r.turns)).tests)
    full = _full_inputs(r)
    for t in shown:
        given = full.get(t.input, t.input)
        if not given or len(given) > MAX_GIVEN:
            continue
        if takes is None:
            yield VisibleTest(given.rstrip("\n") + "\n", t.expected if t.judged else UNKNOWN)
        elif (args := _arguments(given, takes)) is not None:
            yield VisibleTest(args, _value(t.expected) if t.judged else UNKNOWN)


def _full_inputs(r: Rollout) -> dict[str, str]:
    """Inputs as `shown_tests` cuts them -> as they are recorded."""
    rows = r.detail.get("tests") if isinstance(r.detail, Mapping) else None
    texts = [t.get("input") for t in rows if isinstance(t, Mapping)] if isinstance(rows, list | tuple) else []
    return {x.strip()[:500]: x for x in texts if isinstance(x, str)}


def _arguments(text: str, takes: tuple[int, int]) -> list[Any] | None:
    for said in (f"({text},)", f"[{', '.join(text.splitlines())}]"):
        try:
            args = list(ast.literal_eval(said))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        if takes[0] <= len(args) <= takes[1]:
            return args
    return None


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text


def probe_rollouts(
    some: Sequence[Rollout], sandbox: Callable[[], Sandbox], kept: Path | None = None, say: Progress | None = None
) -> list[ProbeRecord]:
    """What the probes say of each rollout. Equal programs with equal tests are run once; `kept`: folder of earlier
    records."""
    tell = partial(say or (lambda what, done, of: None), "running programs")
    found: dict[str, ProbeRecord] = {}
    todo: dict[str, ProbedProgram] = {}
    keys: list[str] = []
    for r in some:
        program = probed_program(r)
        if isinstance(program, str):
            keys.append(program)
            found[program] = nothing_ran(program)
            continue
        said = repr((VERSION, astuple(program))).encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(said, digest_size=16).hexdigest()
        keys.append(key)
        if key not in found and (known := _known(kept, key)) is not None:
            found[key] = known
        elif key not in found:
            todo[key] = program
    names = list(todo)
    for a in range(0, len(names), BLOCK):
        tell(a, len(names))
        block = names[a : a + BLOCK]
        for key, record in zip(block, probe_programs(sandbox(), [todo[k] for k in block]), strict=True):
            found[key] = record
            _keep(kept, key, record)
    return [found[k] for k in keys]


def _place(kept: Path, key: str) -> Path:
    return kept / key[:2] / f"{key}.json"


def _known(kept: Path | None, key: str) -> ProbeRecord | None:
    if kept is None:
        return None
    try:
        return ProbeRecord.of(json.loads(regular_file.read_text(_place(kept, key))))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(kept: Path | None, key: str, record: ProbeRecord) -> None:
    # what the sandbox or another load may have caused is tried again the next time
    if kept is None or any(why.startswith(("the sandbox", "does not end")) for why in record.not_run.values()):
        return
    path = _place(kept, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_synced(path, json.dumps(record.plain()).encode())
