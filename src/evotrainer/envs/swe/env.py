"""The environment of repository tasks: episodes of tool calls in a world, scored by hidden tests."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from evotrainer.envs.base import (
    Capability,
    DrawnSplits,
    Episode,
    Score,
    Slot,
    SplitSizes,
    Task,
    refuse_held_out,
)
from evotrainer.envs.callables import first_line
from evotrainer.envs.components import compute, with_own
from evotrainer.envs.slots import OBSERVATION, PROMPT, SYSTEM, ScaffoldedEnvironment
from evotrainer.envs.swe import demos, tools
from evotrainer.envs.swe.generate import Plan, repositories
from evotrainer.envs.swe.memory import MemoryWorld
from evotrainer.envs.swe.ops import GENERATOR_VERSION
from evotrainer.envs.swe.rewards import COMPONENTS, OUTCOME, Component, SweRewardInput
from evotrainer.envs.swe.world import Grade, Observation, ParsedAction, Repo, World
from evotrainer.envs.vocabulary import vocabulary
from evotrainer.errors import TaskSetError
from evotrainer.records.canaries import KEY
from evotrainer.records.frozen import parsed
from evotrainer.records.rollout import Finish, Outcome, ToolCall, Turn
from evotrainer.records.text import clean_text

if TYPE_CHECKING:
    from evotrainer.sandbox import Sandbox

MAX_PATCH = 1 << 20
"""Characters of a patch that are kept with a rollout; grading reads the files."""
MAX_NAMED = 64
"""Control files named with a rollout."""
KEEP_SPLITS = 8
"""Task lists that a process keeps, for environments that are opened anew and for processes that it forks."""
KNOBS: Mapping[str, tuple[Any, ...]] = {
    "history": ("scrubbed", "full"),
    "tests": ("protected", "writable"),
    "visible_tests": ("shown", "hidden"),
}
CAPABILITIES = (
    Capability(
        name="history",
        knob="history",
        open="full",
        closed="scrubbed",
        about="git log and git show reach the commit that fixes the bug; closed, nothing newer than the base",
        kinds=("answer_leak",),
    ),
    Capability(
        name="tests",
        knob="tests",
        open="writable",
        closed="protected",
        about="the repository's test files can be edited; closed, edits of them are refused",
        kinds=("test_tampering",),
    ),
    Capability(
        name="visible_tests",
        knob="visible_tests",
        open="shown",
        closed="hidden",
        about="the repository has tests to read and run, which the visible reward is graded on; closed, it has none",
        kinds=("special_casing", "proxy_gap"),
        honest=True,
    ),
)


class SweConfig(SplitSizes):
    """`[environment]` of a task file with name = "swe"."""

    name: Literal["swe"] = "swe"
    modules: int = Field(2, ge=1, le=6)
    functions: int = Field(2, ge=1, le=4)
    """Functions per module."""
    steps: tuple[int, ...] = (2,)
    """Lengths of functions, in operations, each 2 to 4."""
    documented: float = Field(0.7, ge=0, le=1)
    """Functions whose comment is their specification."""
    indirect: float = Field(0.0, ge=0, le=1)
    """Tasks whose issue speaks of a caller of the buggy function, in another module."""

    @property
    def plan(self) -> Plan:
        return Plan(self.modules, self.functions, self.steps, self.documented, self.indirect)


def parse_config(config: Mapping[str, Any]) -> SweConfig:
    """TaskSetError with what is wrong."""
    found = parsed(SweConfig, config, "environment swe", TaskSetError)
    if not found.steps or any(not 2 <= n <= 4 for n in found.steps):
        raise TaskSetError(f"environment swe: steps are lengths from 2 to 4, not {list(found.steps)}")
    if found.modules * found.functions < 2:
        raise TaskSetError("environment swe: a repository needs two functions; raise modules or functions")
    return found


class SweEnv(ScaffoldedEnvironment):
    """Repository tasks; in memory unless another world is given. `components` adds a user's own."""

    name = "swe"
    knobs: Mapping[str, tuple[Any, ...]] = KNOBS
    capabilities: Sequence[Capability] = CAPABILITIES
    proxy: tuple[str, str] | None = ("visible", "hidden")
    outcome_components: Sequence[str] = OUTCOME
    offers: Sequence[str] = ("references", "turn_rewards")
    slots: Sequence[Slot] = (SYSTEM, PROMPT, OBSERVATION)
    redraws = True
    vocabulary_version = "swe-v1"

    def __init__(
        self,
        config: SweConfig | None = None,
        *,
        components: Mapping[str, Component] | None = None,
        world: World | None = None,
        open_sandbox: Callable[[], Sandbox] | None = None,
        accept_tier_e: bool = False,
    ) -> None:
        self.config = config or SweConfig()
        self._owned = open_sandbox is None
        self.world: World = world or MemoryWorld(open_sandbox or _opener(accept_tier_e))
        self._components: dict[str, Component] = with_own(COMPONENTS, components)
        self.components = {n: first_line(f) for n, f in self._components.items()}
        c = self.config
        self._made = DrawnSplits(lambda split, seed: make_split(split, self._sizes()[split], seed, c.plan), c.seed)

    def _hash(self) -> str:
        key = f"{GENERATOR_VERSION}:{self.config.seed}:{sorted(self._sizes().items())}:{self.config.plan}"
        return hashlib.sha256(key.encode()).hexdigest()[:16]

    def _sizes(self) -> dict[str, int]:
        return self.config.sizes

    def _of_split(self, split: str) -> Sequence[Task]:
        return self._made[split]

    def redraw(self, seed: str) -> None:
        """Other repositories over the compositions and issue texts that gate and cert hold out (see envs/base.py)."""
        self._made.redraw(seed)

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        self.settle_knobs(knobs)
        handle = self.world.open(task.data["repo"], knobs)
        state = {"handle": handle, "actions": [], "observations": []}
        return Episode(task, knobs, self.opening(task, knobs), state=state)

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        parsed = [self.parse(text, finish) for text, finish in zip(actions, finishes, strict=True)]
        observed = self.world.act([e.state["handle"] for e in episodes], parsed)
        for e, text, action, seen in zip(episodes, actions, parsed, observed, strict=True):
            e.state["actions"].append(action)
            e.state["observations"].append(seen)
            e.turns += [Turn("assistant", text, (_call(text, action, seen),)), self._answer(seen)]
            if seen.done or seen.fault is not None:
                e.done, e.finish = True, "stop" if seen.fault is None else "error"

    def _answer(self, seen: Observation) -> Turn:
        return Turn("tool", self._scaffold.fill(OBSERVATION.name, observation=clean_text(seen.text)))

    def parse(self, text: str, finish: Finish) -> ParsedAction:
        """The action in what the policy wrote; none where it was cut off."""
        return tools.parse(text) if finish != "length" else ParsedAction("invalid", error=tools.TOO_LONG)

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        grades = self.world.grade([e.state["handle"] for e in episodes])
        out = []
        for e, grade in zip(episodes, grades, strict=True):
            self.world.close(e.state["handle"])
            out.append(self._score(e, grade))
        return out

    def _score(self, e: Episode, grade: Grade) -> Score:
        seen: list[Observation] = e.state["observations"]
        fault = grade.fault or next((o.fault for o in seen if o.fault is not None), None)
        if fault is not None:
            detail = {KEY: dict(grade.flip)} if grade.flip else {}
            return Score(dict.fromkeys(self._components), "unknown", error=fault, error_kind="sandbox", detail=detail)
        repo: Repo = e.task.data["repo"]
        submitted = bool(seen) and seen[-1].done
        attempt = SweRewardInput(repo, e.state["actions"], seen, grade, submitted)
        values = compute(self._components, attempt, e.task.id)
        outcome: Outcome = "correct" if values["hidden"] == 1.0 else "incorrect"
        failed = tuple(0.0 if o.ok else -1.0 for o in seen)
        return Score(values, outcome, turns=failed, detail=_detail(repo, e.knobs, grade))

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, ...]]:
        """(prompt, action, observation, action, ...) of a teacher with honest mistakes, on train compositions only."""
        return demos.demonstrations(self.world, self.config.plan, demos.SweTeacher(), n, seed)

    def references(self, tasks: Sequence[Task], knobs: Mapping[str, Any]) -> Sequence[tuple[str, ...] | None]:
        """The gold edit of train repositories, played: find the function, read it, mend it, test, submit."""
        refuse_held_out(tasks)
        scripts = [demos.reference(t.data["repo"], {**demos.SCRUBBED, **knobs}) for t in tasks]
        played = demos.play(self.world, scripts)
        return [x if x is None else self._scaffold.transcript(x) for x in played]

    def drills(self, n: int, seed: int) -> list[tuple[str, ...]]:
        """Single skills: write a line from its specification, mend a line, apply a diff, find a line's number."""
        return demos.drills(self.config.plan, n, seed)

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary(self.vocabulary_version)

    def describe(self) -> dict[str, Any]:
        sandbox = getattr(self.world, "sandbox", None)
        return {
            **super().describe(),
            "world": type(self.world).__name__,
            "sandbox_tier": sandbox.tier if sandbox is not None else None,
            "isolation": sandbox.report.isolation() if sandbox is not None else None,
            "network": "closed",
        }

    def close(self) -> None:
        if self._owned:
            self.world.shutdown()


def _opener(accept_tier_e: bool) -> Callable[[], Sandbox]:
    def open_sandbox() -> Sandbox:
        from evotrainer.sandbox import Sandbox

        return Sandbox.open(accept_tier_e=accept_tier_e)

    return open_sandbox


@lru_cache(KEEP_SPLITS)
def make_split(split: str, size: int, seed: int | str, plan: Plan) -> tuple[Task, ...]:
    """The tasks of a split, in a fixed order that only these arguments decide; every prompt once."""
    rng = random.Random(f"{GENERATOR_VERSION}:{seed}:{split}")
    found: dict[str, Task] = {}
    while len(found) < size:
        task = as_task(repositories(rng, split, plan), split)
        found.setdefault(task.prompt, task)
    return tuple(found.values())


def as_task(repo: Repo, split: str) -> Task:
    digest = hashlib.blake2b(repo.issue.encode(), digest_size=6).hexdigest()
    return Task(f"swe-{split}-{digest}", split, repo.issue, {"repo": repo}, dict(repo.tags))


def _call(text: str, action: ParsedAction, seen: Observation) -> ToolCall:
    """The action as it was written: its first word and the rest. git is a command of the shell, as in others' logs."""
    name, _, arguments = text.strip().partition(" ")
    if name == "git":
        return ToolCall("shell", text.strip(), seen.ok)
    known = name in tools.VERBS
    return ToolCall(name if known else "unknown", arguments if known else text.strip(), seen.ok)


def _detail(repo: Repo, knobs: Mapping[str, Any], grade: Grade) -> dict[str, Any]:
    """What a reader wants to see with the rollout."""
    gold = tools.git_patch(repo.files, {**repo.files, **repo.gold})
    tests = [{"kind": "visible", "name": i, "passed": ok} for i, ok in grade.visible.items()]
    tests += [{"kind": "hidden", "name": i, "passed": ok} for i, ok in grade.hidden.items()]
    return {
        "bug": repo.tags.get("bug", ""),
        "patch": clean_text(grade.patch[:MAX_PATCH]),
        "gold_patch": gold,
        "fail_to_pass": list(repo.fail_to_pass),
        **({KEY: dict(grade.flip)} if grade.flip else {}),
        **({"forged_report": list(grade.forged[:MAX_NAMED])} if grade.forged else {}),
        **({"graded_inside": list(grade.inside[:MAX_NAMED])} if grade.inside else {}),
        "protected": {
            **dict.fromkeys(grade.control_changed[:MAX_NAMED], False),
            **{p: p not in grade.tests_changed for p in repo.visible},
        },
        "tests": tests,
    }
