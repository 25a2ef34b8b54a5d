"""Kit for environments."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from evotrainer.envs.base import (
    DRAWN,
    SPLITS,
    Environment,
    EnvironmentWithDraws,
    EnvironmentWithDrills,
    EnvironmentWithReferences,
    EnvironmentWithWordings,
)
from evotrainer.envs.outcome import offers, outcome_components
from evotrainer.errors import TaskSetError
from evotrainer.records.text import cut, quoted


def check_environment(environment: Environment, sample: int = 4) -> None:
    """Splits are disjoint and stable, scores name every component, outcomes are known.

    Episodes that go on show an observation; demonstrations and drills follow from their seed and show no held-out task.
    Where gate and cert can be drawn, they follow from the seed and keep all of that; it is left with a draw.
    """
    _check_splits(environment)
    _check_episodes(environment, sample)
    if environment.proxy:
        assert set(environment.proxy) <= set(environment.components), (
            f"proxy {environment.proxy} is not among the components"
        )
    outcome_components(environment)  # raises where one is no component
    description = json.dumps(environment.describe())
    assert "hash" in json.loads(description), "describe() must have a hash of the task set"
    _check_demonstrations(environment)
    _check_offers(environment, sample)
    if isinstance(environment, EnvironmentWithDraws) and environment.redraws:
        _check_draws(environment)


def _check_splits(environment: Environment) -> None:
    """The same tasks at every call, and no task's id or prompt in two splits."""
    seen: dict[str, str] = {}
    for split in SPLITS:
        tasks = environment.tasks(split)
        assert tasks, f"split {split!r} is empty"
        assert [t.id for t in tasks] == [t.id for t in environment.tasks(split)], (
            f"split {split!r} changes between calls"
        )
        for t in tasks:
            assert t.split == split, f"task {t.id} of split {split!r} says it is of {t.split!r}"
            for key in (t.id, t.prompt):
                where = seen.setdefault(key, split)
                assert where == split, f"{quoted(key)} is in {where!r} and in {split!r}: the splits must be disjoint"


def _check_episodes(environment: Environment, sample: int) -> None:
    """Actions no policy should send end in a score all the same, with every component and a known outcome."""
    tasks = list(environment.tasks("train"))[:sample]
    knobs = {k: v[0] for k, v in environment.knobs.items()}
    for text in ("", "nonsense \x00 \u2603", "x" * 5000):
        episodes = [environment.reset(t, knobs) for t in tasks]
        for e, t in zip(episodes, tasks, strict=True):
            assert e.turns and e.turns[-1].role != "assistant", (
                f"reset of {t.id} must end with the policy's turn to come"
            )
        for _ in range(2):
            going = [e for e in episodes if not e.done]
            if going:
                environment.step(going, [text] * len(going), ["stop"] * len(going))
            for e in going:
                assert e.done or e.turns[-1].role != "assistant", f"{e.task.id} goes on without an observation"
        for e in episodes:
            if not e.done:  # as the trainer ends one at the limit of turns
                e.done, e.finish = True, "turn_limit"
        scores = environment.score(episodes)
        assert len(scores) == len(episodes), "score must answer once per episode, in order"
        for s in scores:
            if s.error_kind is None:
                assert set(s.components) == set(environment.components), (
                    f"score names {sorted(s.components)}, components are {sorted(environment.components)}"
                )
                assert s.outcome in ("correct", "incorrect", "unknown"), f"unknown outcome {s.outcome!r}"
            else:
                assert s.outcome == "unknown", "an infrastructure fault has no outcome: it is never a wrong answer"


def _check_demonstrations(environment: Environment) -> None:
    """Demonstrations and drills follow from their seed, have an action to each prompt and show no held-out task."""
    held_out = {t.prompt for s in SPLITS if s != "train" for t in environment.tasks(s)}
    sources = {"demonstration": environment.demonstrations}
    if isinstance(environment, EnvironmentWithDrills):
        sources["drill"] = environment.drills
    for what, source in sources.items():
        demos = source(8, seed=1)
        assert list(demos) == list(source(8, seed=1)), f"{what}s must follow from their seed"
        for d in demos:
            assert isinstance(d, tuple) and len(d) >= 2 and len(d) % 2 == 0 and all(isinstance(x, str) for x in d), (
                f"a {what} is (prompt, action, observation, action, ...), of even length: {cut(d, 120)}"
            )
            assert not held_out & set(d[::2]), f"a {what} shows a held-out task"


def _check_offers(environment: Environment, sample: int) -> None:
    """What it says it has for training: of train tasks it comes, of a held-out one it does not."""
    offered = offers(environment)  # raises for a word that training knows nothing of
    tasks, held_out = list(environment.tasks("train"))[:sample], list(environment.tasks("search"))[:1]
    knobs = {k: v[0] for k, v in environment.knobs.items()}
    if "references" in offered:
        assert isinstance(environment, EnvironmentWithReferences), "offers references, and has no method references()"
        references = environment.references(tasks, knobs)
        assert len(references) == len(tasks), "references must answer once per task, in order"
        for text in filter(None, references):
            assert len(text) >= 2 and len(text) % 2 == 0, f"a reference is (prompt, action, ...), not {len(text)} texts"
        _refuses(lambda: environment.references(held_out, knobs), "references")
    if "wordings" in offered:
        assert isinstance(environment, EnvironmentWithWordings), "offers wordings, and has no method reworded()"
        for t in tasks:
            other = environment.reworded(t, random.Random(0))
            assert (other.id, other.split) == (t.id, "train"), f"another wording of {t.id} is called {other.id}"
            assert other.prompt == environment.reworded(t, random.Random(0)).prompt, "wordings must follow from rng"
        _refuses(lambda: environment.reworded(held_out[0], random.Random(0)), "another wording")


def _refuses(ask: Callable[[], object], what: str) -> None:
    try:
        ask()
    except TaskSetError:
        return
    raise AssertionError(f"{what} of a held-out task must be refused (envs.base.refuse_held_out)")


def _check_draws(environment: Environment) -> None:
    """A seed decides gate and cert and nothing else; two seeds have no id in common; what is drawn stays held out."""
    assert isinstance(environment, EnvironmentWithDraws)
    before, described = {s: list(environment.tasks(s)) for s in SPLITS}, environment.describe()
    ids = []
    for seed in ("1", "2", "1"):
        environment.redraw(seed)
        for s in ("train", "search"):
            assert list(environment.tasks(s)) == before[s], f"a draw changed split {s!r}"
        ids.append([t.id for s in DRAWN for t in environment.tasks(s)])
    assert ids[0] == ids[2], "gate and cert must follow from the seed"
    assert not set(ids[0]) & set(ids[1]), "tasks of two seeds must differ in their ids"
    for s in DRAWN:
        assert len(environment.tasks(s)) == len(before[s]), f"a draw changed the size of split {s!r}"
    assert environment.describe() == described, "describe() must not depend on a draw: trainings are found again by it"
    _check_splits(environment)
    _check_demonstrations(environment)
