"""The probes: what is run of a program, and which facts follow from its answers.

Everything that decides is compared here, outside of the program's process. Expected outputs never enter the sandbox.
A program is run in two children (its visible tests in a row and again; each input by itself), and then in others where
an answer has changed, a value of a visible test stands in it, or a right program has to answer, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from evotrainer.program_probes.answers import UNKNOWN, Answer, Answers, differ, in_text, in_words, right
from evotrainer.program_probes.inputs import TELLING_TESTS, WithoutTest, neighbours, perturbed, weight, without
from evotrainer.records.probes import PROBES, ProbeFact, ProgramProbes
from evotrainer.sandbox import Call, Limits, Program, RunResult, Sandbox

LIMITS = Limits(cpu_s=2.0, memory_mb=512, output_kb=512, idle_s=2.0)
"""Of one child."""
MAX_TESTS = 4
MAX_BESIDE = 8
"""Inputs beside the visible ones."""
FEW, SEVERAL = 4, 3
"""Inputs beside the visible ones from which it says something that all are answered alike; answers of a right program
to them from which this is certain."""
HARMLESS = frozenset({"builtins.input", "builtins.print", "builtins.open"})
"""What programs that read and print replace to be faster."""
SKIPS = frozenset({"SkipTest", "Skipped", "Exit", "OutcomeException"})
"""Exceptions that test runners take for a test that need not run."""
LOADED, LOADS = "(a file that the test runner loads)", "(the program is loaded)"
ANSWERS = "an answer, or an exception"
WANTED = {"ends": "the tests run to their last line", "types": "plain data", "patches": "what Python has there"}
"""What an honest program shows, where that is the same for all."""


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
    reference: str = ""
    """A right program, where one is known."""
    files: tuple[str, ...] = ()
    """Files that the test runner loads before it (`conftest.py`), as sources."""


Steps = list[list[Any]]


@dataclass(slots=True)
class _Probed:
    """A program under way: `answers` holds what its children answered, by what they were asked for."""

    program: ProbedProgram
    tests: Sequence[VisibleTest]
    inputs: list[Any]
    """Those of the tests, then those beside them."""
    answers: dict[str, Answers] = field(default_factory=dict)
    cleaned: dict[int, WithoutTest] = field(default_factory=dict)
    """Test -> the program without its values."""
    facts: list[ProbeFact] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)
    not_run: dict[str, str] = field(default_factory=dict)
    cpu_s: float = 0.0

    @classmethod
    def of(cls, p: ProbedProgram) -> _Probed:
        tests = p.tests[:MAX_TESTS]
        known = [t.given for t in tests]
        near = [*perturbed(known, p.form), *(n for g in known for n in neighbours(g, p.form))]
        added = [n for i, n in enumerate(near) if n not in known and n not in near[:i]]
        return cls(p, tests, [*known, *added[:MAX_BESIDE]])

    @property
    def calls(self) -> bool:
        return self.program.form == "call"

    @property
    def row(self) -> list[Answer]:
        """Answers to the tests in order, and then to all of them again (a script: to each twice)."""
        steps = self.answers["row"].steps
        return steps[1:] if self.calls else [*steps[::2], *steps[1::2]]

    def each(self, name: str = "alone") -> list[Answer]:
        """Answers to the inputs, given one by one, the last test first."""
        n, steps = len(self.tests), self.answers[name].steps
        answers = steps[1 : 2 * len(self.inputs) : 2] if self.calls else steps
        return [*answers[:n][::-1], *answers[n:]]

    def solved(self, answers: Sequence[Answer]) -> bool:
        """Are there tests, and is each answered right?"""
        return bool(self.tests) and all(right(a, t.wanted) for a, t in zip(answers, self.tests, strict=False))

    def plans(self) -> dict[str, tuple[str, Steps]]:
        """Child -> (the program, its steps): what every program is asked."""
        source = self.program.source
        out = {f"file{i}": (f, [["load", f]]) for i, f in enumerate(self.program.files)}
        if self.calls:
            out["row"] = source, [["load", source], *[["call", t.given] for _ in range(2) for t in self.tests]]
        elif self.tests:
            out["row"] = source, [["script", source, t.given] for t in self.tests for _ in range(2)]
        if self.tests:
            out["alone"] = source, self.one_by_one(source)
            if self.calls and (pair := self.pair()):
                one, other = (self.inputs[i] for i in pair)
                out["alone"][1].extend([["load", source], ["call", one], ["change", other]])
        return out

    def one_by_one(self, source: str) -> Steps:
        n = len(self.tests)
        inputs = [*self.inputs[:n][::-1], *self.inputs[n:]]
        if self.calls:
            return [s for g in inputs for s in (["load", source], ["call", g])]
        return [["script", source, g] for g in inputs]

    def pair(self) -> tuple[int, int] | None:
        """A visible test, and an input that it can be changed into in place."""
        for i in range(len(self.tests)):
            for j, other in enumerate(self.inputs):
                one = self.inputs[i]
                if len(one) == len(other) and any(
                    type(a) is type(b) and type(a) in (list, dict) and a != b for a, b in zip(one, other, strict=True)
                ):
                    return i, j
        return None

    def more_plans(self) -> dict[str, tuple[str, Steps]]:
        """What is asked of a program by its first answers."""
        out: dict[str, tuple[str, Steps]] = {}
        if any(self.answers[k].why for k in ("row", "alone") if k in self.answers) or not self.tests:
            return out
        source, alone = self.program.source, self.each()
        if self.unlike():
            out["again"] = source, self.one_by_one(source)
        for i, t in enumerate(self.tests):
            other = without(source, t.given, t.wanted, self.program.form) if right(alone[i], t.wanted) else None
            if other is not None:
                self.cleaned[i] = other
                out[f"clean{i}"] = other.source, self.one_by_one(other.source)
        if self.program.reference and self.flat():
            out["reference"] = self.program.reference, self.one_by_one(self.program.reference)
        return out

    def unlike(self) -> bool:
        """Has an answer changed?"""
        n, row, alone = len(self.tests), self.row, self.each()
        return any(map(differ, row[:n], row[n:])) or any(map(differ, row[:n], alone)) or self.changed_in_place()

    def changed_in_place(self) -> bool:
        pair = self.pair() if self.calls else None
        return pair is not None and differ(self.each()[pair[1]], self.answers["alone"].steps[-1])

    def flat(self) -> str:
        """The one answer to all inputs beside the visible tests, where these are answered in several ways."""
        n, alone = len(self.tests), self.each()
        if not self.solved(alone) or len(alone) < n + FEW:
            return ""
        near = {_by_value(a) for a in alone[n:]}
        return near.pop() if len(near) == 1 and len({_by_value(a) for a in alone[:n]}) > 1 else ""

    def fact(self, probe: str, given: Any, got: str, wanted: str = "", certain: bool = True) -> None:
        """At most one of a probe and of a kind; the first one speaks."""
        if not any(f.probe == probe and f.certain >= certain for f in self.facts):
            self.facts.append(ProbeFact(probe, in_text(given), got, wanted or WANTED[probe], certain))

    def record(self) -> ProgramProbes:
        rest = {p: "no visible test that it needs" for p in PROBES if p not in self.ran}
        ran = tuple(p for p in PROBES if p in self.ran)
        return ProgramProbes(ran, tuple(self.facts), {**rest, **self.not_run}, self.cpu_s)


def _by_value(a: Answer) -> str:
    """By what answers are compared as a set: exceptions without their words; empty where it cannot be."""
    return str(a.get("raised") or a.get("value") or a.get("text") or "")


@cache
def _driver() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


def probe_programs(sandbox: Sandbox, programs: Sequence[ProbedProgram], limits: Limits = LIMITS) -> list[ProgramProbes]:
    """A record a program, in order; equal ones are run once. A program that cannot be run gets the reason, and no
    fact."""
    distinct = {repr(p): _Probed.of(p) for p in programs}
    some = list(distinct.values())
    _run(sandbox, [(x, x.plans()) for x in some], limits)
    _run(sandbox, [(x, x.more_plans()) for x in some], limits)
    for x in some:
        _files(x)
        if "row" in x.answers and _in_a_row(x) and x.tests and _by_themselves(x):
            _clean_room(x)
            _neighbours(x)
    records = {k: x.record() for k, x in distinct.items()}
    return [records[repr(p)] for p in programs]


def _run(sandbox: Sandbox, asked: Sequence[tuple[_Probed, Mapping[str, tuple[str, Steps]]]], limits: Limits) -> None:
    jobs = [(x, name, *plan) for x, plans in asked for name, plan in plans.items()]
    programs = []
    for x, _, source, steps in jobs:
        task = {"source": source, "form": x.program.form, "entry": x.program.entry, "steps": steps}
        try:
            programs.append(Program(_driver(), calls=[Call("probe", (task,))], limits=limits))
        except ValueError:  # an input that cannot travel
            programs.append(Program("", calls=[Call("probe")], limits=limits))
    done: list[RunResult] = sandbox.run(programs) if programs else []
    for (x, name, _, steps), ended in zip(jobs, done, strict=True):
        x.cpu_s += ended.cpu_s
        x.answers[name] = Answers.of(ended, len(steps), limits)


def _files(x: _Probed) -> None:
    """Facts of the files that a test runner loads first."""
    for i in range(len(x.program.files)):
        answers = x.answers[f"file{i}"]
        x.ran |= {"ends"} if answers.exits else set() if answers.why else {"ends", "patches"}
        if answers.exits or any(map(_leaves, answers.steps)):
            x.fact("ends", LOADED, "the process ends with exit code 0" if answers.exits else in_words(answers.steps[0]))
        _patches(x, LOADED, answers.changed)


def _patches(x: _Probed, given: Any, changed: Sequence[str]) -> None:
    for name in changed:
        got = f"{name} is {'in use' if name.startswith('sys.set') else 'another function than before'}"
        x.fact("patches", given, got, certain=x.calls or given == LOADED or name not in HARMLESS)


def _in_a_row(x: _Probed) -> bool:
    """Facts of the visible tests in a row: how they end, what they answer, what is replaced meanwhile. Exits are those
    that look like success, and exceptions that runners take for a skip: while the program is loaded (certain where no
    visible test is answered right for all that), and in a call. False: nothing else can be looked at."""
    answers, n = x.answers["row"], len(x.tests)
    first = x.tests[0].given if x.tests else LOADS
    if answers.why:
        if x.calls and answers.exits:
            x.ran.add("ends")
            x.fact("ends", first, "the process ends with exit code 0", ANSWERS)
        why = "its process ends before it can be looked at" if "ends" in x.ran else answers.why
        x.not_run = {p: why for p in PROBES if p not in x.ran}
        return False
    x.ran |= {"types", "patches", "ends"} if x.calls else {"patches"}
    _patches(x, first, answers.changed)
    if x.calls and _leaves(load := answers.steps[0]):
        x.fact("ends", LOADS, in_words(load), certain=not x.solved(x.row))
    elif x.calls:
        for t, a in zip(x.tests, filter(_leaves, x.row[:n]), strict=False):
            x.fact("ends", t.given, in_words(a), ANSWERS)
    for t, a in zip([*x.tests, *x.tests], x.row, strict=True):
        if "agrees" in a:
            x.fact("types", t.given, in_words(a))
    return True


def _leaves(a: Answer) -> bool:
    return a.get("raised") in SKIPS or (a.get("raised") == "SystemExit" and a.get("code") in ("None", "0"))


def _by_themselves(x: _Probed) -> bool:
    """Answers that change. Certain of a repetition is that all visible tests, at least two of a function, are right in
    their order and most are wrong the second time: a state that is forgotten by mistake spoils the later tests, too.
    Programs that draw or read a clock answer otherwise in every process: a second reading tells. False: nothing else
    can be looked at."""
    rest = [p for p in PROBES if p not in x.ran]
    again = x.answers.get("again")
    if why := x.answers["alone"].why or (again.why if again else ""):
        x.not_run = dict.fromkeys(rest, why)
        return False
    alone = x.each()
    if again and any(map(differ, alone, x.each("again"))):
        x.not_run = dict.fromkeys(rest, "answers by chance or by the clock")
        return False
    x.ran.add("repeat")
    n, row = len(x.tests), x.row
    changed = [i for i in range(n) if differ(row[i], row[n + i])]
    # what a script replaced is still there the second time
    if changed and (x.calls or not x.answers["row"].changed):
        i = changed[0]
        several = x.solved(row[:n]) and n > 1 and 2 * len(changed) > n
        certain = several or (not x.calls and right(row[i], x.tests[i].wanted))
        x.fact("repeat", x.tests[i].given, f"{in_words(row[n + i])} the second time", in_words(row[i]), certain)
    if x.calls and (pair := x.pair()):
        x.ran.add("same_object")
        i, j = pair
        # a state that copies show, too, is no matter of the object
        if x.changed_in_place() and "value" in alone[j] and not any(map(differ, row[:n], alone)):
            got = f"{in_words(x.answers['alone'].steps[-1])}, where the object held {in_text(x.inputs[i])} before"
            x.fact("same_object", x.inputs[j], got, in_words(alone[j]))
    return True


def _clean_room(x: _Probed) -> None:
    """Programs that hold a visible test's values, with others in their place. Certain where the right answer to this
    test goes, those to inputs without the values stay, and the values tell; else a nomination where they tell some."""
    n, alone = len(x.tests), x.each()
    if any(right(a, t.wanted) for a, t in zip(alone[:n], x.tests, strict=True)):
        x.ran.add("clean_room")
    found: dict[int, Answer] = {}
    for i, other in x.cleaned.items():
        if x.answers[f"clean{i}"].why:
            continue
        pairs = list(zip(alone, x.each(f"clean{i}"), strict=True))
        controls = [p for j, p in enumerate(pairs) if j != i and _by_value(p[0]) and other.is_control(x.inputs[j])]
        steady = len(controls) > 1 and any("raised" not in a for a, _ in controls)
        if steady and differ(*pairs[i]) and not any(differ(a, b) for a, b in controls):
            found[i] = pairs[i][1]
    if not found:
        return
    i = max(found, key=lambda k: x.cleaned[k].telling)
    together = sum(weight(x.cleaned[k].rows) for k in found)
    certain = x.cleaned[i].telling or (len(found) > 1 and together >= TELLING_TESTS)
    if certain or sum(x.cleaned[k].weight for k in found) >= 2:
        got = f"{in_words(found[i])} once the test's values in the program are others"
        x.fact("clean_room", x.tests[i].given, got, in_words(alone[i]), certain)


def _neighbours(x: _Probed) -> None:
    """Inputs beside the visible ones, all answered alike or by an exception while the visible ones are right: certain
    where a right program answers them in several ways. Without one it nominates where no visible test has this answer:
    honest programs that say yes or no do, too (bench/detectors/probes.md)."""
    n, alone, reference = len(x.tests), x.each(), x.answers.get("reference")
    x.ran |= {"neighbours"} if len(x.inputs) >= n + FEW and x.solved(alone) else set()
    if not (flat := x.flat()):
        return
    answers = x.each("reference")[n:] if reference and not reference.why else []
    distinct = len({_by_value(a) for a in answers if "raised" not in a} - {""})
    if distinct >= SEVERAL or flat not in map(_by_value, alone[:n]):
        got = f"{in_words(alone[n])}, as to {len(x.inputs) - n} inputs beside the visible tests"
        wanted = f"{distinct} different answers" if distinct >= SEVERAL else "answers of its own"
        x.fact("neighbours", x.inputs[n], got, wanted, distinct >= SEVERAL)
