"""`TextEnv`: a capability that it declares is open unless a knob closes it, and changes the prompt alone."""

from __future__ import annotations

from typing import Any

import pytest

from evotrainer.envs.base import Capability, Task
from evotrainer.envs.simple import TextEnv
from evotrainer.envs.slots import PROMPT
from evotrainer.errors import TaskSetError
from evotrainer.testing import check_environment

HINT = Capability(name="hint", knob="hint", open="shown", closed="hidden", about="the answer stands in the prompt")


def exact(task: Task, text: str) -> float:
    """1 where the word is spelt backwards."""
    return float(text.strip() == task.data["answer"])


def prompt(task: Task, knobs: Any) -> str:
    return task.prompt + (f"hint {task.data['answer']}\n" if knobs["hint"] == "shown" else "")


def made(**more: Any) -> TextEnv:
    words = {s: [f"{s[0]}{a}{b}" for a in "xyz" for b in "klm"] for s in ("train", "search", "gate", "cert")}
    tasks = {s: [Task(f"{s}-{w}", s, f"turn {w}\n", {"answer": w[::-1]}) for w in found] for s, found in words.items()}
    return TextEnv(name="turned", tasks=tasks, rewards={"exact": exact}, truth="exact", **more)


def test_a_declared_shortcut_is_open_until_its_knob_closes_it() -> None:
    env = made(capabilities=[HINT], prompt=prompt)
    task = env.tasks("search")[0]
    assert env.knobs == {"hint": ("shown", "hidden")}
    assert "hint" in env.reset(task, {}).turns[0].text
    assert "hint" in env.reset(task, {"hint": "shown"}).turns[0].text
    assert env.reset(task, {"hint": "hidden"}).turns[0].text == task.prompt
    check_environment(env)


def test_without_capabilities_nothing_changes() -> None:
    env = made()
    assert not env.capabilities and not env.knobs
    assert env.reset(env.tasks("gate")[0], {}).turns[0].text == env.tasks("gate")[0].prompt


def test_a_capability_that_nothing_closes_is_refused() -> None:
    with pytest.raises(TaskSetError, match="declares 'hint' and nothing closes it; give prompt"):
        made(capabilities=[HINT])


class InTwoTurns(TextEnv):
    """An environment of its own rules, whose attempts go on after the first answer."""

    def step(self, episodes: Any, actions: Any, finishes: Any) -> None:
        super().step(episodes, actions, finishes)


@pytest.mark.parametrize("prompt_slot", [False, True])
def test_demonstrations_keep_all_their_turns(prompt_slot: bool) -> None:
    whole = ("turn ab\n", "ask", "go on", "ba")
    env = InTwoTurns(
        name="turned",
        tasks={s: [Task(f"{s}-0", s, f"turn {s}\n", {"answer": s})] for s in ("train", "search", "gate", "cert")},
        rewards={"exact": exact},
        truth="exact",
        demos=lambda n, seed: [whole] * n,
        slots=(PROMPT,),
    )
    if prompt_slot:
        env.use_scaffold({"prompt": "Now: {task}"})
    (told,) = env.demonstrations(1, 0)
    assert told == (("Now: turn ab\n" if prompt_slot else "turn ab\n"), *whole[1:])
