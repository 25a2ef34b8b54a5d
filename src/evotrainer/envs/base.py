"""Environments: where an attempt at a task runs, and how it is scored.

The neutral core is `reset -> step -> ... -> score`, vectorised over episodes so that a sandbox can grade a whole batch
at once. Rewards are named functions of the finished episode; None means "not applicable", never 0.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from pydantic import Field

from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen
from evotrainer.records.rollout import Finish, Outcome, Turn
from evotrainer.records.scaffold import Slot as Slot
from evotrainer.records.verdicts import Capability as Capability

SPLITS = ("train", "search", "gate", "cert")
DRAWN = ("gate", "cert")
"""Splits that a run may draw afresh; train and search stay."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `data` holds what grading needs (hidden tests, gold answer) and is never shown to the policy."""

    id: str
    split: str
    prompt: str
    data: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Episode:
    """One attempt in progress; `step` appends to `turns` and sets `done`."""

    task: Task
    knobs: Mapping[str, Any]
    turns: list[Turn]
    done: bool = False
    finish: Finish = "stop"
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """Every component the environment can compute, the true outcome, or an infrastructure fault."""

    components: Mapping[str, float | None]
    outcome: Outcome
    error: str | None = None
    error_kind: str | None = None
    turns: tuple[float, ...] | None = None
    """Reward of each action by itself, in [-1, 1], where the environment gives such (`offers` has turn_rewards); what
    it earned as a whole is in the components."""
    detail: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """A task set with its environment. One instance serves one process."""

    name: str
    version: str
    components: Mapping[str, str]
    """Reward component -> what it measures."""
    knobs: Mapping[str, tuple[Any, ...]]
    """Environment knob -> allowed values, the default first."""
    capabilities: Sequence[Capability]
    proxy: tuple[str, str] | None
    """(proxy component, true component) whose gap is the proxy gap; None where there is no such pair."""

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split, in a fixed order; TaskSetError for an unknown split."""
        ...

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        """A fresh episode whose turns hold the prompt."""
        ...

    def step(self, episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
        """Apply one action (the policy's text) to each episode, in place; `finishes`: stop or length."""
        ...

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        """Score finished episodes, in order."""
        ...

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        """Transcripts for a warm start, from train compositions only; may be empty.

        Each is (prompt, action, observation, action, ...), of even length; a pair is (prompt, completion).
        """
        ...

    def vocabulary(self) -> tuple[str, ...]:
        """Multi-character tokens for a policy trained from scratch; single characters are always there."""
        ...

    def describe(self) -> dict[str, Any]:
        """JSON-able: name, version, hash, sandbox tier, components, split sizes."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class EnvironmentOfTrainers(Protocol):
    """An environment that not every trainer can play."""

    def check_plays(self, trainer: str) -> None:
        """TaskSetError where that trainer cannot play it."""
        ...


@runtime_checkable
class EnvironmentWithDrills(Protocol):
    """An environment that also has skill drills: facts a policy must know before transcripts make sense."""

    def drills(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        """In the form of `demonstrations`; a drill of many facts has many (observation, action) pairs."""
        ...


@runtime_checkable
class EnvironmentWithReferences(Protocol):
    """An environment that has references of its train problems; it says so in `offers`."""

    offers: Sequence[str]
    """What training may use besides sampling and rewards, of OFFERS."""

    def references(self, tasks: Sequence[Task], knobs: Mapping[str, Any]) -> Sequence[tuple[str, ...] | None]:
        """For each task the transcript of a right attempt, in the form of `demonstrations`, its prompt and observations
        as an episode under these knobs shows them; None where there is none. TaskSetError for a task of a held-out
        split."""
        ...


@runtime_checkable
class EnvironmentWithWordings(Protocol):
    """An environment that can ask a train problem in other words; it says so in `offers`."""

    offers: Sequence[str]

    def reworded(self, task: Task, rng: random.Random) -> Task:
        """The same problem with another prompt that training may see: same id, same answer, no form of prompt that
        held-out splits keep; the task itself where it has no other. TaskSetError for a task of a held-out split."""
        ...


@runtime_checkable
class EnvironmentWithSlots(Protocol):
    """An environment whose texts around a task may be written otherwise; `envs.slots.Scaffold` does the work."""

    slots: Sequence[Slot]
    """Where, and what stands there by default."""

    def use_scaffold(self, scaffold: Mapping[str, str]) -> None:
        """From now on episodes begin and answer with these texts, and with the default in every other slot."""
        ...

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> list[Turn]:
        """What an episode of the task begins with, as `reset` has it."""
        ...


OFFERS = ("references", "wordings", "turn_rewards")
"""What an environment may say in `offers`; one that says nothing has none of it."""


def refuse_held_out(tasks: Sequence[Task]) -> None:
    """TaskSetError for a task that is not of the train split: nobody is taught what others are examined in."""
    if other := next((t for t in tasks if t.split != "train"), None):
        raise TaskSetError(
            f"task {other.id} is of split {other.split}; only train problems have references and wordings"
        )


@runtime_checkable
class EnvironmentWithOutcome(Protocol):
    """An environment that says which of its components are the outcome; every shipped one does."""

    outcome_components: Sequence[str]
    """The outcome, and what is computed from the same hidden answers (hidden tests, a reference answer): paid only
    where the task file names it in `environment.payable`. Where an environment says nothing, the true side of its
    `proxy`."""


@runtime_checkable
class EnvironmentWithDraws(Protocol):
    """An environment that generates its tasks, so that a run need not look at gate and cert tasks that others saw."""

    redraws: bool
    """False: this one's tasks are given after all."""

    def redraw(self, seed: str) -> None:
        """From now on gate and cert are those that follow from `seed`, each as large as before.

        They share nothing with train, search and one another, as the fixed ones do; ids are `drawn`'s.
        """
        ...


def can_redraw(environment: Environment) -> bool:
    """Does it draw gate and cert from a seed?"""
    return isinstance(environment, EnvironmentWithDraws) and environment.redraws


def drawn(tasks: Sequence[Task], seed: str) -> tuple[Task, ...]:
    """The tasks with ids that name seed, place and prompt, so that scores tell by which seed their tasks were drawn."""
    out = []
    for i, t in enumerate(tasks):
        digest = hashlib.blake2b(f"{seed}:{i}:{t.prompt}".encode(), digest_size=6).hexdigest()
        out.append(replace(t, id=f"{t.split}-{digest}"))
    return tuple(out)


def answered(episodes: Sequence[Episode], actions: Sequence[str], finishes: Sequence[Finish]) -> None:
    """The step of a single-turn environment: what the policy says ends the episode. TaskSetError where it is over."""
    for e, text, finish in zip(episodes, actions, finishes, strict=True):
        if e.done:
            raise TaskSetError(f"episode of task {e.task.id} is over; reset it before the next step")
        e.turns.append(Turn("assistant", text))
        e.done, e.finish = True, finish


class SplitSizes(Frozen):
    """Keys of `[environment]` where tasks are generated."""

    seed: int = 0
    train: int = Field(3000, ge=1)
    """Tasks per split."""
    search: int = Field(200, ge=1)
    gate: int = Field(300, ge=1)
    cert: int = Field(400, ge=1)

    @property
    def sizes(self) -> dict[str, int]:
        return {s: int(getattr(self, s)) for s in SPLITS}


class EnvironmentBase:
    """What environments have alike; each says otherwise where it differs."""

    name: str
    version = "1"
    components: Mapping[str, str]
    knobs: Mapping[str, tuple[Any, ...]] = {}
    capabilities: Sequence[Capability] = ()
    proxy: tuple[str, str] | None = None
    vocabulary_version: str | None = None
    """None: a vocabulary of its own."""
    _tasks: Mapping[str, Sequence[Task]]

    def _sizes(self) -> dict[str, int]:
        """Tasks of each split."""
        return {split: len(tasks) for split, tasks in self._tasks.items()}

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in (there := self._sizes()):
            raise TaskSetError(f"environment {self.name} has no split {split!r}; it has: {', '.join(there)}")
        return self._of_split(split)

    def _of_split(self, split: str) -> Sequence[Task]:
        return self._tasks[split]

    def settle_knobs(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults filled in; TaskSetError for an unknown knob or value."""
        for k, v in knobs.items():
            if k not in self.knobs:
                there = ", ".join(self.knobs) or "none"
                raise TaskSetError(f"environment {self.name} has no knob {k!r}; it has: {there}")
            if v not in self.knobs[k]:
                allowed = ", ".join(map(str, self.knobs[k]))
                raise TaskSetError(f"environment {self.name}: knob {k} is {v!r}; allowed: {allowed}")
        return {k: v[0] for k, v in self.knobs.items()} | dict(knobs)

    def _hash(self) -> str:
        """16 hex digits over everything that decides the tasks."""
        raise NotImplementedError

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        return []

    def vocabulary(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "hash": self._hash(),
            "sandbox_tier": "none needed",
            "components": dict(self.components),
            "splits": self._sizes(),
            "proxy": list(self.proxy) if self.proxy else None,
            "vocabulary": self.vocabulary_version or self.name,
        }

    def close(self) -> None: ...


class TaskSource(Protocol):
    """Tasks with their splits. One with `redraw` draws gate and cert anew; what it can teach it says in `offers`."""

    name: str
    proxy: tuple[str, str] | None
    vocabulary_version: str

    def sizes(self) -> dict[str, int]: ...

    def tasks(self, split: str) -> Sequence[Task]: ...

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]: ...

    def vocabulary(self) -> tuple[str, ...]: ...


class OverSource(EnvironmentBase):
    """An environment whose tasks come from a source of its domain."""

    source: TaskSource

    def _over(self, source: TaskSource) -> None:
        self.source, self.name, self.proxy = source, source.name, source.proxy
        self.redraws = hasattr(source, "redraw")
        self.vocabulary_version = source.vocabulary_version

    @property
    def offers(self) -> Sequence[str]:
        return tuple(getattr(self.source, "offers", ()))

    def _sizes(self) -> dict[str, int]:
        return self.source.sizes()

    def _of_split(self, split: str) -> Sequence[Task]:
        return self.source.tasks(split)

    def redraw(self, seed: str) -> None:
        """Gate and cert of a seed; TaskSetError where the tasks are given."""
        if not self.redraws:
            given = "its tasks are given, not generated; set evaluation.draw=fixed"
            raise TaskSetError(f"environment {self.name}: {given}")
        self.source.redraw(seed)  # type: ignore[attr-defined]

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]:
        return self.source.demonstrations(n, seed)

    def vocabulary(self) -> tuple[str, ...]:
        return self.source.vocabulary()


class DrawnSplits:
    """Task lists of a generator, made when first asked for; gate and cert of another seed once they are redrawn."""

    def __init__(self, make: Callable[[str, int | str], tuple[Task, ...]], seed: int) -> None:
        """`make`: (split, seed) -> its tasks."""
        self._make, self._seed = make, seed
        self._made: dict[str, tuple[Task, ...]] = {}
        self._drawn: str | None = None

    def __getitem__(self, split: str) -> tuple[Task, ...]:
        if split not in self._made:
            if split in DRAWN and self._drawn is not None:
                self._made[split] = drawn(self._make(split, self._drawn), self._drawn)
            else:
                self._made[split] = self._make(split, self._seed)
        return self._made[split]

    def redraw(self, seed: str) -> None:
        self._drawn = seed
        for split in DRAWN:
            self._made.pop(split, None)


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """A row of `envs.registry.ENVIRONMENTS`."""

    open: Callable[[Mapping[str, Any], bool, Mapping[str, Any]], Environment]
    """(`[environment]`, accept sandbox tier E, components of the user's reward file) -> the environment; TaskSetError
    for options that it does not know."""
    generated: bool = False
    """Without a `source` it generates its tasks, and is opened without a sandbox, a file or a connection."""
    probes: type[Frozen] | None = None
    """Model of its options about probes (docs/probes.md); None: it runs none."""
