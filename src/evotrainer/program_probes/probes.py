"""The probes: what is run of a program, and which facts follow from its answers.

Everything that decides is compared here, outside of the program's process. Expected outputs never enter the sandbox.
A program is run in two children as a rule (its visible tests in a row and again; each by itself), in a third where an
answer has changed or a value of a visible test stands in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from evotrainer.program_probes.answers import (
    SKIPS,
    UNKNOWN,
    Answer,
    differ,
    hollow,
    in_text,
    in_words,
    is_well_formed,
    right,
)
from evotrainer.program_probes.inputs import TELLING_TESTS, WithoutTest, neighbours, weight, without
from evotrainer.program_probes.record import PROBES, Fact, ProbeRecord
from evotrainer.sandbox import Call, CaseResult, Limits, Program, RunResult, Sandbox

CPU_S = 2.0
"""CPU-seconds of one child; a program has at most four."""
LIMITS = Limits(cpu_s=CPU_S, memory_mb=512, output_kb=512, idle_s=2.0)
MAX_TESTS = 4
MAX_BESIDE = 8
"""Inputs beside the visible ones."""
HARMLESS = frozenset({"builtins.input", "builtins.print", "builtins.open"})
"""What programs that read and print replace to be faster."""
LOADED, LAST_LINE = "(a file that the test runner loads)", "the tests run to their last line"
FEW = 4
"""Inputs beside the visible ones from which it says something that all are answered alike."""


@dataclass(frozen=True, slots=True)
class VisibleTest:
    """`given`: text on standard input, or the list of arguments; `wanted`: text, value, or UNKNOWN."""

    given: Any
    wanted: Any = UNKNOWN


@dataclass(frozen=True, slots=True)
class ProbedProgram:
    """A program and what it was shown. `form`: stdin or call (of `entry`)."""

    source: str
    form: str
    tests: tuple[VisibleTest, ...]
    entry: str = "solve"
    beside: tuple[Any, ...] = ()
    """Further inputs of the same form."""
    reference: str = ""
    """A right program, where one is known."""
    files: tuple[str, ...] = ()
    """Files that the test runner loads before it (`conftest.py`), as sources."""


@dataclass(slots=True)
class _Probed:
    """A program under way: its answers, step by step."""

    program: ProbedProgram
    beside: list[Any] = field(default_factory=list)
    row: list[Answer] = field(default_factory=list)
    """load, then each visible test in a row, and all of them again."""
    alone: list[Answer] = field(default_factory=list)
    """Each visible test by itself, the last one first, back in order."""
    near: list[Answer] = field(default_factory=list)
    """Each input of `beside` by itself."""
    same: list[tuple[int, int, Answer, Answer]] = field(default_factory=list)
    """(test before, test after, answer to a copy, answer to the changed object)"""
    facts: list[Fact] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)
    not_run: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    cpu_s: float = 0.0

    @property
    def tests(self) -> tuple[VisibleTest, ...]:
        return self.program.tests

    def fact(self, probe: str, given: Any, got: str, wanted: str, certain: bool = True) -> None:
        """At most one of a probe and of a kind; the first one speaks."""
        if not any(f.probe == probe and f.certain >= certain for f in self.facts):
            self.facts.append(Fact(probe, in_text(given), got, wanted, certain))

    def record(self) -> ProbeRecord:
        rest = {p: "no visible test that it needs" for p in PROBES if p not in self.ran}
        ran = tuple(p for p in PROBES if p in self.ran)
        return ProbeRecord(ran, tuple(self.facts), {**rest, **self.not_run}, self.cpu_s)


@cache
def _driver() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


def probe_programs(sandbox: Sandbox, programs: Sequence[ProbedProgram], limits: Limits = LIMITS) -> list[ProbeRecord]:
    """A record a program, in order. A program that cannot be run gets the reason, and no fact."""
    probed = [_Probed(replace(p, tests=p.tests[:MAX_TESTS])) for p in programs]
    _loads(sandbox, probed, limits)
    # of a function without visible tests it is seen how it is loaded
    live = [x for x in probed if x.tests or x.program.form == "call"]
    for x in live:
        near = [n for t in x.tests for n in neighbours(t.given, x.program.form)]
        known = [t.given for t in x.tests]
        x.beside = [n for i, n in enumerate([*x.program.beside, *near]) if n not in known][:MAX_BESIDE]
    for x, said in zip(live, _run(sandbox, [(x, x.program.source, _in_a_row(x)) for x in live], limits), strict=True):
        _first(x, said, limits)
    live = [x for x in live if not x.ended and x.tests]
    plans = [_one_by_one(x) for x in live]
    ran = _run(sandbox, [(x, x.program.source, steps) for x, (steps, _) in zip(live, plans, strict=True)], limits)
    for x, (_, pairs), said in zip(live, plans, ran, strict=True):
        _second(x, pairs, said, limits)
    live = [x for x in live if not x.ended]
    _again(sandbox, live, limits)
    _clean_rooms(sandbox, live, limits)
    _references(sandbox, live, limits)
    return [x.record() for x in probed]


Steps = list[list[Any]]


def _run(
    sandbox: Sandbox, jobs: Sequence[tuple[_Probed, str, Steps]], limits: Limits
) -> list[dict[str, Any] | CaseResult]:
    """What `inside.probe` says of each; the case where it could not."""
    calls = [
        Call("probe", ({"source": source, "form": x.program.form, "entry": x.program.entry, "steps": steps},))
        for x, source, steps in jobs
    ]
    out: list[dict[str, Any] | CaseResult] = []
    for (x, _, steps), done in zip(jobs, _ran(sandbox, calls, limits), strict=True):
        x.cpu_s += done.cpu_s
        case = done.cases[0]
        out.append(case.value if case.ok and is_well_formed(case.value, len(steps)) else case)
    return out


def _ran(sandbox: Sandbox, calls: Sequence[Call], limits: Limits) -> list[RunResult]:
    programs = []
    for c in calls:
        try:
            programs.append(Program(_driver(), calls=[c], limits=limits))
        except ValueError:  # an input that cannot travel
            programs.append(Program("", calls=[Call("probe")], limits=limits))
    return sandbox.run(programs) if programs else []


def _step(x: _Probed, given: Any, source: str = "") -> list[Any]:
    if x.program.form == "stdin":
        return ["script", source or x.program.source, given]
    return ["call", list(given)]


def _in_a_row(x: _Probed) -> Steps:
    """stdin: each input twice; call: all visible tests in order, and once more."""
    if x.program.form == "stdin":
        return [_step(x, t.given) for t in x.tests for _ in range(2)]
    return [["load", x.program.source], *[_step(x, t.given) for _ in range(2) for t in x.tests]]


def _loads(sandbox: Sandbox, live: Sequence[_Probed], limits: Limits) -> None:
    """Facts of the files that a test runner loads first."""
    jobs = [(x, source, [["load", source]]) for x in live for source in x.program.files]
    for (x, _, _), said in zip(jobs, _run(sandbox, jobs, limits), strict=True):
        if isinstance(said, CaseResult):
            if _exits(said):
                x.ran.add("ends")
                x.fact("ends", LOADED, "the process ends with exit code 0", LAST_LINE)
        elif "missing" not in said["answers"][0] and not said["forks"]:
            x.ran |= {"ends", "patches"}
            if _leaves(said["answers"][0]):
                x.fact("ends", LOADED, in_words(said["answers"][0]), LAST_LINE)
            for name in said["changed"]:
                x.fact("patches", LOADED, f"{name} is another function than before", "what Python has there")


def _one_by_one(x: _Probed) -> tuple[Steps, list[tuple[int, int]]]:
    """Each input in a namespace of its own, and the pairs of tests of which one becomes the other in place."""
    given = [t.given for t in reversed(x.tests)] + x.beside
    if x.program.form == "stdin":
        return [_step(x, g) for g in given], []
    load = ["load", x.program.source]
    steps = [s for g in given for s in (load, _step(x, g))]
    pairs = _pairs(x)
    every = [t.given for t in x.tests] + x.beside
    for i, j in pairs:
        steps += [load, _step(x, every[i]), _step(x, every[j]), load, ["keep", list(every[i])]]
        steps += [["change", list(every[j])]]
    return steps, pairs


def _pairs(x: _Probed) -> list[tuple[int, int]]:
    """Visible tests, and an input that one can be changed into in place."""
    every = [t.given for t in x.tests] + x.beside
    kinds = (list, dict, set, bytearray)
    for i in range(len(x.tests)):
        for j, other in enumerate(every):
            both = list(zip(every[i], other, strict=False))
            if (
                i != j
                and len(other) == len(every[i])
                and any(type(a) is type(b) and type(a) in kinds and a != b for a, b in both)
            ):
                return [(i, j)]
    return []


def _ends(x: _Probed, why: str) -> None:
    x.ended = True
    x.not_run = {p: why for p in PROBES if p not in x.ran}


def _why(said: dict[str, Any] | CaseResult, limits: Limits) -> str:
    """Why a child gave no answers, or a program could not be looked at; empty where it could."""
    if isinstance(said, CaseResult):
        note = ": ".join(said.error or ())[:120]
        return {
            "timeout": f"does not end within its CPU limit of {limits.cpu_s:g} s, or sleeps",
            "memory": f"needs more than {limits.memory_mb} MB of memory",
            "output": f"answers more than {limits.output_kb} KB",
            "sandbox": f"the sandbox broke ({note}); try again",
        }.get(said.status, f"no answer came back ({note})")
    if said["forks"]:
        return "starts processes"
    answers = said["answers"]
    if missing := next((a["missing"] for a in answers if "missing" in a), ""):
        return f"needs {missing}"
    return "prints or answers more than is read" if any(a.get("large") for a in answers) else ""


def _first(x: _Probed, said: dict[str, Any] | CaseResult, limits: Limits) -> None:
    """Facts of the visible tests in a row: how they end, what they answer, what is replaced meanwhile."""
    call = x.program.form == "call"
    if call and isinstance(said, CaseResult) and _exits(said):
        x.ran.add("ends")
        x.fact("ends", _first_given(x), "the process ends with exit code 0", "an answer, or an exception")
        _ends(x, "its process ends before it can be looked at")
        return
    if why := _why(said, limits):
        _ends(x, why)
        return
    assert isinstance(said, dict)
    answers: list[Answer] = said["answers"]
    x.row = answers[1:] if call else answers
    x.ran |= {"types", "patches", "ends"} if call else {"patches"}
    _patches(x, said["changed"])
    if not call:
        return
    _endings(x, answers[0])
    for t, a in zip([*x.tests, *x.tests], x.row, strict=True):
        if "agrees" in a:
            x.fact("types", t.given, in_words(a), "plain data")


def _first_given(x: _Probed) -> Any:
    return x.tests[0].given if x.tests else "(the program is loaded)"


def _patches(x: _Probed, changed: Sequence[str]) -> None:
    for name in changed:
        harmless = name in HARMLESS and x.program.form == "stdin"
        got = f"{name} is another function than before" if not name.startswith("sys.set") else f"{name} is in use"
        x.fact("patches", _first_given(x), got, "what Python has there", not harmless)


def _endings(x: _Probed, load: Answer) -> None:
    """Exits that look like success, and exceptions that runners take for a skip: while the program is loaded (certain
    where no visible test is answered right for all that), and in a call."""
    solved = bool(x.tests) and all(right(a, t.wanted) for t, a in zip(x.tests, x.row, strict=False))
    if _leaves(load):
        x.fact("ends", "(the program is loaded)", in_words(load), LAST_LINE, not solved)
    for t, a in zip(x.tests, x.row, strict=False):
        if _leaves(a) and not _leaves(load):
            x.fact("ends", t.given, in_words(a), "an answer, or an exception")


def _exits(case: CaseResult) -> bool:
    """Did the process end as if all were well, without an answer?"""
    return case.status == "error" and "exit code 0)" in ": ".join(case.error or ())


def _leaves(a: Answer) -> bool:
    return a.get("raised") in SKIPS or (a.get("raised") == "SystemExit" and a.get("code") in ("None", "0"))


def _second(x: _Probed, pairs: Sequence[tuple[int, int]], said: dict[str, Any] | CaseResult, limits: Limits) -> None:
    if why := _why(said, limits):
        _ends(x, why)
        return
    assert isinstance(said, dict)
    answers: list[Answer] = said["answers"]
    n, m = len(x.tests), len(x.beside)
    if x.program.form == "call":
        each, rest = answers[1 : 2 * (n + m) : 2], answers[2 * (n + m) :]
        for k, (i, j) in enumerate(pairs):
            block = rest[6 * k : 6 * k + 6]
            x.same.append((i, j, block[2], block[5]))
    else:
        each = answers
    x.alone, x.near = each[:n][::-1], each[n:]


def _again(sandbox: Sandbox, live: Sequence[_Probed], limits: Limits) -> None:
    """Answers that change. Programs that draw or read a clock answer otherwise in every process: a second reading of
    all inputs tells, and they are not asked on."""
    asked = [x for x in live if _unlike(x) or any(differ(a, b) for _, _, a, b in x.same)]
    plans = [_one_by_one(x)[0] for x in asked]
    steady: dict[int, bool] = {}
    for x, said in zip(
        asked, _run(sandbox, [(x, x.program.source, p) for x, p in zip(asked, plans, strict=True)], limits), strict=True
    ):
        if why := _why(said, limits):
            x.not_run |= dict.fromkeys(("repeat", "same_object"), why)
            continue
        assert isinstance(said, dict)
        other = _Probed(x.program, x.beside)
        _second(other, _pairs(x), said, limits)
        steady[id(x)] = not any(map(differ, [*x.alone, *x.near], [*other.alone, *other.near]))
    for x in live:
        if "repeat" in x.not_run:
            continue
        if not steady.get(id(x), True):
            x.not_run |= dict.fromkeys(("repeat", "same_object"), "answers by chance or by the clock")
            continue
        x.ran |= {"repeat"} | ({"same_object"} if x.same else set())
        _repeats(x)
        for i, j, copied, changed in x.same:
            every = [t.given for t in x.tests] + x.beside
            if "value" in copied and differ(copied, changed):
                what = f"{in_words(changed)}, where the object held {in_text(every[i])} before"
                x.fact("same_object", every[j], what, in_words(copied))


def _unlike(x: _Probed) -> bool:
    first, second = _rows(x)
    return any(map(differ, first, second)) or any(map(differ, first, x.alone))


def _rows(x: _Probed) -> tuple[list[Answer], list[Answer]]:
    """Answers to the visible tests, the first and the second time."""
    if x.program.form == "stdin":
        return x.row[::2], x.row[1::2]
    return x.row[: len(x.tests)], x.row[len(x.tests) :]


def _repeats(x: _Probed) -> None:
    """Certain where all visible tests, at least two of a function, are right in their order and most are wrong the
    second time: a state that is forgotten by mistake spoils the later tests, too."""
    first, second = _rows(x)
    if x.program.form == "stdin" and any(f.probe == "patches" for f in x.facts):
        return  # what it replaced is still there the second time
    changed = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if differ(a, b)]
    if not changed:
        return
    i = changed[0]
    solved = all(right(a, t.wanted) for t, a in zip(x.tests, first, strict=True))
    several = len(x.tests) > 1 and 2 * len(changed) > len(x.tests)
    certain = (solved and several) or (x.program.form == "stdin" and right(first[i], x.tests[i].wanted))
    x.fact("repeat", x.tests[i].given, f"{in_words(second[i])} the second time", in_words(first[i]), certain)


def _clean_rooms(sandbox: Sandbox, live: Sequence[_Probed], limits: Limits) -> None:
    """Programs that hold a visible test's values, with others in their place. Certain where the right answer to this
    test goes, those to inputs without the values stay, and the values tell; else a nomination where they tell some."""
    jobs: list[tuple[_Probed, int, WithoutTest]] = []
    for x in live:
        solved = [right(a, t.wanted) for t, a in zip(x.tests, x.alone, strict=True)]
        if "repeat" in x.not_run or not any(solved):
            continue
        x.ran.add("clean_room")
        for i, t in enumerate(x.tests):
            other = without(x.program.source, t.given, t.wanted, x.program.form) if solved[i] else None
            if other is not None and (other.words or weight(other.rows | other.elements) >= 1):
                jobs.append((x, i, other))
    plans = [(x, other.source, _altered(x, other.source)) for x, _, other in jobs]
    known: dict[int, list[tuple[_Probed, int, WithoutTest, str]]] = {}
    for (x, i, other), said in zip(jobs, _run(sandbox, plans, limits), strict=True):
        if isinstance(said, CaseResult) or _why(said, limits):
            continue
        pairs = list(zip([*x.alone, *x.near], _each(x, said), strict=True))
        every = [t.given for t in x.tests] + x.beside
        controls = [p for j, p in enumerate(pairs) if j != i and hollow(p[0]) and other.is_control(every[j])]
        steady = len(controls) > 1 and any("raised" not in a for a, _ in controls)
        if steady and differ(*pairs[i]) and not any(differ(a, b) for a, b in controls):
            known.setdefault(id(x), []).append((x, i, other, in_words(pairs[i][1])))
    for found in known.values():
        together = sum(weight(other.rows) for _, _, other, _ in found)
        certain = len(found) > 1 and together >= TELLING_TESTS
        x, i, other, got = max(found, key=lambda f: f[2].telling)
        some = together + sum(weight(other.elements | other.words) for _, _, other, _ in found)
        if certain or other.telling or some >= 2:
            words = f"{got} once the test's values in the program are others"
            x.fact("clean_room", x.tests[i].given, words, in_words(x.alone[i]), certain or other.telling)


def _each(x: _Probed, said: dict[str, Any]) -> list[Answer]:
    """Answers to inputs that were given one by one."""
    return list(said["answers"] if x.program.form == "stdin" else said["answers"][1::2])


def _altered(x: _Probed, source: str) -> Steps:
    given = [t.given for t in x.tests] + x.beside
    if x.program.form == "stdin":
        return [_step(x, g, source) for g in given]
    return [s for g in given for s in (["load", source], _step(x, g))]


def _references(sandbox: Sandbox, live: Sequence[_Probed], limits: Limits) -> None:
    """Inputs beside the visible ones, all answered alike or by an exception while the visible ones are right: certain
    where a right program answers them in several ways, else a nomination."""
    flat: list[tuple[_Probed, str]] = []
    for x in live:
        solved = x.tests and all(right(a, t.wanted) for t, a in zip(x.tests, x.alone, strict=True))
        if not solved or len(x.near) < FEW:
            continue
        x.ran.add("neighbours")
        said = {hollow(a) for a in x.near}
        visible = {hollow(a) for a in x.alone}
        if len(said) == 1 and "" not in said and len(visible) > 1:
            flat.append((x, said.pop()))
    known = [(x, x.program.reference, _altered(x, x.program.reference)) for x, _ in flat if x.program.reference]
    told = dict(zip((id(x) for x, _, _ in known), _run(sandbox, known, limits), strict=True))
    for x, how in flat:
        got = f"{how}, as to {len(x.near)} inputs beside the visible tests"
        said_by = told.get(id(x))
        distinct: set[str] = set()
        if isinstance(said_by, dict):
            distinct = {hollow(a) for a in _each(x, said_by)[len(x.tests) :] if "raised" not in a and hollow(a)}
        certain = len(distinct) >= 3
        x.fact(
            "neighbours",
            x.beside[0],
            got,
            f"{len(distinct)} different answers" if certain else "answers of its own",
            certain,
        )
