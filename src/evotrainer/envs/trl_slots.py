"""The texts around tasks that TRL plays: system prompt, descriptions of tools, what their answers stand in."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evotrainer.envs.slots import OBSERVATION, PROMPT, SYSTEM, Scaffold
from evotrainer.errors import TaskSetError
from evotrainer.records.scaffold import Slot

TOOL = "tool_"
"""Before a method's name: the slot of its description."""
_SECTION = re.compile(r"^(?:Args|Returns|Raises):", re.MULTILINE)
"""Where a description ends: a template is given what follows as the tool's parameters."""


def slots_of(factory: type | None, conversational: bool) -> tuple[Slot, ...]:
    """The slots of a class, or of reward functions over prompts: messages can have a system prompt, a text cannot."""
    if factory is None:
        return (SYSTEM, PROMPT) if conversational else (PROMPT,)
    described = [
        Slot(name=TOOL + n, about=f"what the policy is told of the tool {n}", default=_parts(f)[0], most=1000)
        for n, f in tools(factory).items()
    ]
    return (SYSTEM, PROMPT, *described, OBSERVATION)


def tools(factory: type) -> dict[str, Callable[..., Any]]:
    """Name -> method, of those that TRL gives the policy as tools."""
    found = inspect.getmembers(factory, predicate=inspect.isfunction)
    return {n: f for n, f in found if not n.startswith("_") and n not in ("reset", "get_reward")}


def _parts(f: Callable[..., Any]) -> tuple[str, str]:
    """(description, parameters and what follows) of a method's docstring."""
    text = inspect.getdoc(f) or ""
    at = _SECTION.search(text)
    return (text[: at.start()].rstrip(), text[at.start() :]) if at else (text, "")


def dressed(factory: type, scaffold: Scaffold) -> type:
    """The class with the descriptions and the format of answers of a scaffold; itself where these are the defaults."""
    texts = scaffold.texts
    methods = {
        n: _dressed(f, texts.get(TOOL + n), scaffold)
        for n, f in tools(factory).items()
        if TOOL + n in texts or OBSERVATION.name in texts
    }
    return type(factory.__name__, (factory,), {"__module__": factory.__module__, **methods}) if methods else factory


def _dressed(f: Callable[..., Any], description: str | None, scaffold: Scaffold) -> Callable[..., Any]:
    def shown(answer: Any) -> Any:
        framed = OBSERVATION.name in scaffold.texts and not isinstance(answer, list)  # a list holds images
        return scaffold.fill(OBSERVATION.name, observation=str(answer)) if framed else answer

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return shown(f(*args, **kwargs))

    @functools.wraps(f)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return shown(await f(*args, **kwargs))

    out: Callable[..., Any] = awaited if inspect.iscoroutinefunction(f) else wrapped
    if description is not None:
        out.__doc__ = "\n\n".join(filter(None, (description, _parts(f)[1])))
    return out


def check_descriptions(where: str, texts: Mapping[str, str]) -> None:
    """TaskSetError for a description that is empty or would be read as parameters: templates refuse both."""
    for name, text in texts.items():
        if name.startswith(TOOL) and (not text.strip() or _SECTION.search(text)):
            raise TaskSetError(
                f"recipe.scaffold: {where}: {name} describes the tool in words; Args:, Returns: and Raises: stay those "
                "of the method, and no description may be empty"
            )


def with_prompt(prompt: Any, scaffold: Scaffold) -> Any:
    """A row's prompt, text or messages, in the scaffold's texts: the first user message stands in `prompt`, a system
    prompt takes the place of the row's own."""
    if not scaffold.texts:
        return prompt
    if isinstance(prompt, str):
        return scaffold.fill(PROMPT.name, task=prompt)
    messages: Sequence[Mapping[str, Any]] = prompt
    out = [dict(m) for m in messages]
    for m in out:
        if m.get("role") == "user" and isinstance(m.get("content"), str):
            m["content"] = scaffold.fill(PROMPT.name, task=m["content"])
            break
    if system := scaffold.fill(SYSTEM.name):
        out = [{"role": "system", "content": system}, *(m for m in out if m.get("role") != "system")]
    return out
