"""Programming problems from a data set: MBPP, HumanEval, LiveCodeBench, TACO and APPS,
or a user's stdin/stdout rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from evotrainer.envs.base import Task
from evotrainer.envs.code.functions import CHECK_CPU_S, KINDS, check_task
from evotrainer.envs.code.probing import ProbeOptions
from evotrainer.envs.code.problems import READERS
from evotrainer.envs.code.task_list import ListSource
from evotrainer.envs.data.rows import listed, split_of
from evotrainer.envs.data.tables import DataOptions, Format, TableRow, load_table, without_duplicates
from evotrainer.errors import TaskSetError

STDIN_CPU_S = 4.0
"""CPU-seconds per test of a program that reads stdin, or of a call."""
PREAMBLE = (
    "import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys\n"
    "from bisect import *\nfrom collections import *\nfrom functools import *\nfrom heapq import *\n"
    "from itertools import *\nfrom math import ceil, comb, floor, gcd, inf, sqrt\nfrom typing import *\n"
)
"""Stands before an answer to starter code, which speaks of `List` and the like without importing them."""
_ID = ("id", "task_id", "question_id", "problem_id", "name")
_TAGS = {
    "difficulty": ("difficulty",),
    "platform": ("platform",),
    "of": ("source",),
    "date": ("contest_date", "date"),
}
_COMPLETION = {n: (n,) for n in ("task_id", "prompt", "entry_point", "canonical_solution", "test")}
FORMATS = (
    Format(
        "mbpp",
        {"text": ("text", "prompt"), "code": ("code",), "test_list": ("test_list",)},
        {"task_id": _ID, "test_setup_code": ("test_setup_code",), "test_imports": ("test_imports",)},
    ),
    Format("mbpp", _COMPLETION, recognises=lambda r: str(r["task_id"]).lower().startswith("mbpp")),
    Format("humaneval", _COMPLETION),
    Format(
        "livecodebench",
        {"question": ("question_content",), "public_test_cases": ("public_test_cases",)},
        {
            "private_test_cases": ("private_test_cases",),
            "starter_code": ("starter_code",),
            "metadata": ("metadata",),
            "title": ("question_title",),
            "solution": ("solution", "reference_solution"),
            "id": ("question_id",),
            **_TAGS,
        },
    ),
    Format(
        "taco",
        {"question": ("question", "problem", "prompt"), "input_output": ("input_output",)},
        {
            "solutions": ("solutions", "solution"),
            "starter_code": ("starter_code",),
            "id": ("id", "problem_id"),
            **_TAGS,
        },
    ),
    Format(
        "stdin",
        {"prompt": ("prompt", "question"), "tests": ("tests",)},
        {"id": ("id",), "solution": ("solution",), **_TAGS},
    ),
)


class CodeDataConfig(DataOptions, ProbeOptions):
    """`[environment]` of a task file with name = "code" and a source."""

    name: Literal["code"] = "code"
    visible: int = Field(0, ge=0)
    """Tests that are graded as visible: the first ones (livecodebench: its public tests, where this is 0)."""
    show: bool | None = None
    """The visible tests stand in the prompt; default: for mbpp and humaneval (as asserts)."""
    tests: int | None = Field(None, ge=1)
    """At most so many hidden tests per task, the first ones; default: all."""
    ask: str | None = None
    """Stands between the question and starter code; default: asks for a Python program, or a function (not for stdin
    rows, mbpp and humaneval, which speak for themselves)."""
    cpu_s: float | None = Field(None, gt=0)
    """CPU-seconds per test (mbpp, humaneval: for all); default: 4 (5)."""
    memory_mb: int = Field(512, ge=64)
    output_kb: int = Field(1024, ge=16)
    """What a program may use and print per test; a test that expects more is left out."""
    admit: bool = True
    """Run each task's own solution, where the data set has one, and leave out tasks that it does not solve."""


def code_source(o: CodeDataConfig) -> ListSource:
    """The data set as a task source; TaskSetError with file, row and column where something is missing or malformed."""
    table = load_table(o, FORMATS, "code")
    form = table.format.name
    checked = form in KINDS
    left_out: dict[str, int] = {}
    tasks = table.each(
        lambda item: _checked(form, item, o) if checked else _tested(form, item, o, left_out), o.malformed
    )
    tasks, dropped = without_duplicates(
        "code", tasks, o.duplicates, of=lambda t: t, ask=lambda t: str(t.data["header"] or t.data["spec"])
    )
    if not tasks:
        raise TaskSetError(f"{o.source}: no task is left: {left_out}; raise output_kb, or give other rows")
    cpu_s = o.cpu_s or (CHECK_CPU_S if checked else STDIN_CPU_S)
    shown = any(t.data["visible"] for t in tasks) and (checked or bool(o.show))
    source = ListSource("code", tasks, cpu_s=cpu_s, shown=shown, memory_mb=o.memory_mb, output_kb=o.output_kb)
    source.about = table.description(duplicates_left_out=dropped, left_out=left_out)
    return source


def _checked(form: str, item: TableRow, o: CodeDataConfig) -> Task:
    row = dict(item.row)
    for name in ("test_list", "test_imports"):  # lists as JSON text, in CSV
        if isinstance(row.get(name), str):
            row[name] = listed(row, name, item.where)
    problem = KINDS[form](row, item.where)
    return check_task(problem, form, split_of(problem.id, item.shares), o.visible)


def _tested(form: str, item: TableRow, o: CodeDataConfig, left_out: dict[str, int]) -> Task | None:
    """None, counted in `left_out`, for a row whose tests are all too large to be run."""
    row, where = item.row, item.where
    p = READERS[form](row, where)
    if not p.question.strip():
        raise TaskSetError(f"{where}: the question is empty; remove or correct the row")
    visible, hidden = list(p.visible), list(p.hidden)
    if o.visible and not visible:
        visible, hidden = hidden[: o.visible], hidden[o.visible :]
    if not hidden:
        raise TaskSetError(
            f"{where}: {len(visible)} visible tests leave no hidden one; lower environment.visible, or remove the row"
        )
    small = [t for t in hidden if len(str(t[1])) <= o.output_kb * 1000]
    for what, n in (("tests beyond output_kb", len(hidden) - len(small)), ("rows of such tests alone", int(not small))):
        if n:
            left_out[what] = left_out.get(what, 0) + n
    hidden = small[: o.tests]
    if not hidden:
        return None
    starter = p.starter.strip("\n").rstrip()
    ask = o.ask if o.ask is not None else "" if form == "stdin" else ASKS[p.form].format(entry_point=p.entry_point)
    prompt = "\n\n".join(x for x in (p.question.strip(), ask.strip(), starter) if x) + "\n"
    tags = {"set": form, "part": item.part} | {t: str(row[t]) for t in _TAGS if row.get(t) not in (None, "")}
    named = row.get("id")
    return Task(
        id=f"{form}-{item.part}-{item.number}" + (f"-{named}" if isinstance(named, (str, int)) else ""),
        split=split_of(p.question, item.shares),
        prompt=examples(prompt, visible) if o.show and visible and p.form == "stdin" else prompt,
        data={
            "form": p.form,
            "spec": prompt,
            "entry_point": p.entry_point,
            "header": "",
            "preamble": PREAMBLE if p.form == "call" else "",
            "gold": p.golds[0] if p.golds else "",
            "golds": list(p.golds[:MAX_GOLDS]),
            "visible": visible,
            "hidden": hidden,
            "either": p.either,
            "perturb": False,
        },
        tags=tags,
    )


def examples(prompt: str, visible: Sequence[Sequence[str]]) -> str:
    """The prompt with examples behind it."""
    blocks = [f"Input:\n{x.rstrip()}\nOutput:\n{y.rstrip()}\n" for x, y in visible]
    return prompt.rstrip("\n") + "\n\n" + "\n".join(blocks)


ASKS = {
    "stdin": "Write a Python program that reads standard input and prints the answer.",
    "call": "Write it in Python as `{entry_point}`.",
}
MAX_GOLDS = 5
"""Solutions of a row that admission tries."""
