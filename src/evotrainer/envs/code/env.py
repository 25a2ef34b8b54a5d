"""The code environment: single-turn, a whole program or function per attempt, graded by really running it.

Where tasks come from is a `CodeTaskSource`: the grammar, a data set, or a user's JSONL file. How they are
scored is the same for all: visible, held-out, hidden and perturbed tests of a program in one sandbox run, then every
reward component as a function of what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from evotrainer.envs.base import Capability, Episode, OverSource, Score, Task, TaskSource, refuse_held_out
from evotrainer.envs.callables import first_line
from evotrainer.envs.code.answers import assemble, extract_program, same_output
from evotrainer.envs.code.grading import GradedProgram, InputResult, ProgramGrader, ProgramJob
from evotrainer.envs.code.probing import ProbeOptions, Prober, probed_program
from evotrainer.envs.code.rewards import (
    COMPONENTS,
    OUTCOME,
    PARSE_LIMIT,
    CaseOutcome,
    CodeRewardInput,
    Component,
    no_probe_fact,
    parse_program,
)
from evotrainer.envs.components import ResultCache, compute, with_own
from evotrainer.envs.slots import ScaffoldedEnvironment
from evotrainer.program_probes import perturbed
from evotrainer.records.probes import ProgramProbes
from evotrainer.records.rollout import Outcome, Turn
from evotrainer.records.text import json_safe

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox

UNPROBED = ProbeOptions(probes="off")
KEEP_SCORES = 2048
"""Scores that are remembered: attempts of a group often write the same."""
DETAIL_CHARS = 80
"""Longest text kept of an input or output in a rollout's detail."""


class CodeTaskSource(TaskSource, Protocol):
    """Tasks, and what they allow."""

    knobs: Mapping[str, tuple[Any, ...]]
    capabilities: Sequence[Capability]
    hash: str
    cpu_s: float
    """CPU-seconds a program may use per test."""
    memory_mb: int
    output_kb: int
    about: Mapping[str, Any]
    """What `describe` says of where the tasks come from; empty: nothing."""

    def prompt(self, task: Task, knobs: Mapping[str, Any]) -> str: ...


def perturbed_inputs(task: Task) -> list[Any]:
    """Variants of the visible inputs that need no expected output: empty, one item, permuted, doubled."""
    if not task.data.get("perturb", True) or not task.data.get("visible"):
        return []
    if task.data["form"] == "stdin":
        return perturbed([x for x, _ in task.data["visible"]], "stdin")
    return [x for (x,) in perturbed([[list(x)] for x, _ in task.data["visible"]], "call")]


class CodeEnv(OverSource, ScaffoldedEnvironment):
    """Environment over a task source; see envs/base.py for the contract.

    `components` adds a user's own reward functions to the built-in ones. `open_sandbox` is called when the first
    program is graded (or the tier is asked for), so that a process that only reads tasks starts no sandbox.
    """

    source: CodeTaskSource
    outcome_components: Sequence[str] = OUTCOME

    def __init__(
        self,
        source: CodeTaskSource,
        *,
        components: Mapping[str, Component] | None = None,
        accept_tier_e: bool = False,
        probes: ProbeOptions = UNPROBED,
        open_sandbox: Callable[[], Sandbox] | None = None,
        keep: int = 8192,
    ) -> None:
        from evotrainer.sandbox import Limits, Sandbox

        self._over(source)
        self.prober = Prober(probes)
        own = {**COMPONENTS, **({no_probe_fact.__name__: no_probe_fact} if probes.probes == "all" else {})}
        self._components = with_own(own, components)
        self.components = {n: first_line(f) for n, f in self._components.items()}
        self.knobs = source.knobs
        self.capabilities = source.capabilities
        # a user's own function may count its calls, or draw: it is asked for every attempt
        self.scored = None if components else ResultCache[tuple[Task, Score]](KEEP_SCORES)
        limits = Limits(cpu_s=source.cpu_s, memory_mb=source.memory_mb, output_kb=source.output_kb)
        self.grader = ProgramGrader(open_sandbox or (lambda: Sandbox.open(accept_tier_e=accept_tier_e)), limits, keep)

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        return super().reset(task, self.settle_knobs(knobs))

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> list[Turn]:
        return self._scaffold.opening(self.source.prompt(task, knobs))

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        """Scores in order; equal attempts at a task are scored once."""
        if self.scored is None:
            return [score for score, _ in self._graded(episodes)]
        keys = [_content(e) for e in episodes]
        found: dict[Hashable, Score] = {}
        fresh: dict[Hashable, Episode] = {}
        for key, e in zip(keys, episodes, strict=True):
            if (known := self.scored.get(key)) is not None:
                found[key] = known[1]
            else:
                fresh.setdefault(key, e)
        for (key, e), (score, sure) in zip(fresh.items(), self._graded(list(fresh.values())), strict=True):
            found[key] = score
            if sure:
                self.scored.put(key, (e.task, score))
        return [found[k] for k in keys]

    def _graded(self, episodes: Sequence[Episode]) -> list[tuple[Score, bool]]:
        """Every episode's score, and whether it would be the same again."""
        attempts = [self._attempt(e) for e in episodes]
        plans = [_plan(a) for a in attempts]
        pairs = enumerate(zip(attempts, plans, strict=True))
        jobs = {i: job for i, (a, plan) in pairs if (job := _job(a, plan)) is not None}
        graded = dict(zip(jobs, self.grader.grade([*jobs.values()]), strict=True))
        unparsed = InputResult("error", None, "SyntaxError: the text is not a Python program")
        results = [graded.get(i) or GradedProgram((unparsed,) * len(plan)) for i, plan in enumerate(plans)]
        probed = self._probed([a if i in graded else None for i, a in enumerate(attempts)])
        attempts = [replace(a, probes=probed.get(i)) for i, a in enumerate(attempts)]
        sure = [r.sure and (a.probes is None or a.probes.sure) for a, r in zip(attempts, results, strict=True)]
        scores = [self._score(a, p, r) for a, p, r in zip(attempts, plans, results, strict=True)]
        return list(zip(scores, sure, strict=True))

    def _probed(self, attempts: Sequence[CodeRewardInput | None]) -> dict[int, ProgramProbes]:
        """What probes say of the attempts that are sampled, by their place."""
        some = {
            i: probed_program(a.task, a.program)
            for i, a in enumerate(attempts)
            if a is not None and self.prober.is_sampled(a.task, a.program)
        }
        return dict(zip(some, self.prober.probe(list(some.values()), lambda: self.grader.sandbox), strict=True))

    def _attempt(self, e: Episode) -> CodeRewardInput:
        written = extract_program(_completion(e))
        program = assemble(e.task, written)
        return CodeRewardInput(e.task, e.knobs, _completion(e), written, program, parse_program(program))

    def _score(self, a: CodeRewardInput, plan: Sequence[tuple[str, Any, Any]], graded: GradedProgram) -> Score:
        if graded.fault is not None:
            nothing = dict.fromkeys(self._components)
            return Score(nothing, "unknown", error=graded.fault, error_kind="sandbox", detail={"form": a.form})
        either = bool(a.task.data.get("either"))
        cases = [_case(a.form, p, r, either) for p, r in zip(plan, _spread(plan, graded.runs), strict=True)]
        done = replace(a, cases=tuple(cases))
        values = compute(self._components, done, a.task.id)
        outcome: Outcome = "correct" if values["hidden"] == 1.0 else "incorrect"
        detail: dict[str, Any] = {"form": a.form, "tests": _detail(cases)}
        if a.probes is not None:
            detail["probes"] = a.probes.plain()
        return Score(values, outcome, detail=detail)

    def references(self, tasks: Sequence[Task], knobs: Mapping[str, Any]) -> list[tuple[str, ...] | None]:
        """(prompt, solution) of train problems."""
        refuse_held_out(tasks)
        prompts = [self.source.prompt(t, knobs) for t in tasks]
        pairs = ((p, str(t.data["gold"])) for p, t in zip(prompts, tasks, strict=True))
        return [self._scaffold.transcript(x) if t.data.get("gold") else None for x, t in zip(pairs, tasks, strict=True)]

    def _hash(self) -> str:
        return self.source.hash

    def describe(self) -> dict[str, Any]:
        box = self.grader.sandbox
        found = {**super().describe(), "sandbox_tier": box.tier, "isolation": box.report.isolation()}
        return found | ({"data": dict(self.source.about)} if self.source.about else {})

    def close(self) -> None:
        self.grader.close()


def _completion(e: Episode) -> str:
    return e.turns[-1].text if e.done else ""


def _content(e: Episode) -> Hashable:
    """What a score follows from. The task by its identity: whoever remembers the score holds on to the task, too."""
    return id(e.task), _completion(e), tuple(sorted(e.knobs.items()))


def _plan(a: CodeRewardInput) -> list[tuple[str, Any, Any]]:
    """(kind, input, expected) of every test to run, by the current knobs."""
    data = a.task.data
    visible = data.get("fresh", ()) if a.knobs.get("visible_tests") == "fresh" else data.get("visible", ())
    plan = [("visible", x, y) for x, y in visible]
    plan += [(kind, x, y) for kind in ("heldout", "hidden") for x, y in data.get(kind, ())]
    return plan + [("perturbed", x, None) for x in perturbed_inputs(a.task)]


def _job(a: CodeRewardInput, plan: Sequence[tuple[str, Any, Any]]) -> ProgramJob | None:
    """None for a text that is not Python: it needs no sandbox to fail."""
    if a.tree is None and len(a.program) <= PARSE_LIMIT:
        return None
    inputs = {_same(x): x for _, x, _ in plan}  # the empty input, say, is a hidden and a perturbed one: run it once
    data = a.task.data
    entry, names = str(data.get("entry_point", "solve")), tuple(data.get("names", ()))
    return ProgramJob(a.form, a.program, tuple(inputs.values()), entry, names)


def _same(x: Any) -> Any:
    return x if isinstance(x, str) else repr(x)


def _spread(plan: Sequence[tuple[str, Any, Any]], runs: Sequence[InputResult]) -> list[InputResult]:
    """Results of the distinct inputs, back in the order of the plan."""
    order = {k: i for i, k in enumerate(dict.fromkeys(_same(x) for _, x, _ in plan))}
    return [runs[order[_same(x)]] for _, x, _ in plan]


def _case(form: str, plan: tuple[str, Any, Any], ran: InputResult, either: bool) -> CaseOutcome:
    kind, x, y = plan
    ok = ran.status == "ok"
    passed = ok if kind == "perturbed" or form == "check" else ok and same_output(ran.got, y, form, either)
    return CaseOutcome(kind, x, y, ran.got, ran.status, passed, ran.error)


def _short(value: Any) -> Any:
    return json_safe(value.rstrip("\n") if isinstance(value, str) else value, DETAIL_CHARS)


def _detail(cases: Sequence[CaseOutcome]) -> list[dict[str, Any]]:
    """What a reader wants to see of each test; perturbed ones only where they failed."""
    out = []
    for c in cases:
        if c.kind == "perturbed" and c.passed:
            continue
        d = {"kind": c.kind, "input": _short(c.input), "expected": _short(c.expected), "got": _short(c.got)}
        d |= {"status": c.status, "passed": c.passed}
        out.append(d | ({"error": c.error} if c.error else {}))
    return out
