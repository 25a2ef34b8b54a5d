"""Others' chat messages as `Turn`s: roles, texts, tool calls in any of the usual shapes,
and whether each call succeeded."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evotrainer.importers.tolerant import text
from evotrainer.records.rollout import Role, ToolCall, Turn

Verdict = Callable[[dict[str, Any]], bool | None]
"""Success of a tool call by the message that replies to it; None where the reply does not tell."""

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "environment": "tool",
}


def role_of(name: Any) -> Role:
    """The contract's role of a foreign one; whatever is not known spoke to the policy, hence `user`."""
    return _ROLES.get(name.lower(), "user") if isinstance(name, str) else "user"


def as_text(value: Any) -> str:
    """Text as it is; anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def tool_call(raw: Any, ok: bool | None = None) -> ToolCall:
    """One call from `{function: {name, arguments}}`,
    `{function | name | function_name, arguments}` or anything else."""
    if not isinstance(raw, dict):
        return ToolCall(as_text(raw), "", ok)
    inner = raw.get("function")
    holder = inner if isinstance(inner, dict) else raw
    name = (
        inner
        if isinstance(inner, str)
        else next((holder[k] for k in ("name", "function_name", "tool_name") if isinstance(holder.get(k), str)), "")
    )
    arguments = next((holder[k] for k in ("arguments", "input", "kwargs", "args") if k in holder), "")
    return ToolCall(name, as_text(arguments), ok)


def call_id(raw: Any) -> str | None:
    """Id of a call, where it has one."""
    if not isinstance(raw, dict):
        return None
    value = raw.get("id", raw.get("tool_call_id", raw.get("call_id")))
    return value if isinstance(value, str) and value else None


def calls_of(message: dict[str, Any]) -> list[Any]:
    """Raw tool calls of a message; the older single `function_call` too."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        return [c for c in calls if c is not None]
    one = calls if isinstance(calls, dict) else message.get("function_call")
    return [one] if isinstance(one, dict) else []


def said(message: dict[str, Any]) -> str:
    """Text of a message, preceded by its reasoning where that is recorded apart."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    parts = [thought if isinstance(thought, str) else "", text(message.get("content"))]
    return "\n".join(p for p in parts if p)


def error_flag(message: dict[str, Any]) -> bool | None:
    """The verdict of formats whose replies carry an `error`: false where there is one, true otherwise."""
    return not message.get("error")


def error_prefix(message: dict[str, Any]) -> bool | None:
    """The verdict of formats whose failed tools reply with a text that starts with "Error"."""
    return not text(message.get("content")).lstrip().lower().startswith("error")


class TranscriptBuilder:
    """Turns in the making. Replies find their call by id, else in order; time is linear in calls and replies."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._open: deque[tuple[int, int, str | None]] = deque()
        """(turn, call, id) of calls in order, answered ones among them until they come to the front."""
        self._by_id: dict[str, deque[tuple[int, int]]] = {}
        self._answered: dict[tuple[int, int], bool | None] = {}

    def say(self, role: Role, words: str, calls: list[Any] | None = None, tokens: int | None = None) -> None:
        """Append a turn; `calls` are raw ones."""
        calls = calls or []
        n = len(self._turns)
        self._turns.append(Turn(role, words, tuple(tool_call(c) for c in calls), tokens))
        for i, raw in enumerate(calls):
            key = call_id(raw)
            self._open.append((n, i, key))
            if key is not None:
                self._by_id.setdefault(key, deque()).append((n, i))

    def reply(self, words: str, to: str | None, ok: bool | None) -> None:
        """Append a tool turn that answers the call with id `to`, or the oldest open one."""
        self._turns.append(Turn("tool", words))
        named = self._by_id.get(to) if to is not None else None
        # an id may be used twice (some agents number calls per turn): the oldest unanswered call of that id
        while named:
            if (place := named.popleft()) not in self._answered:
                self._answered[place] = ok
                return
        while self._open and self._open[0][:2] in self._answered:
            self._open.popleft()
        # a reply with an id answers a call without one, never a call with another id
        if self._open and (to is None or self._open[0][2] is None):
            self._answered[self._open.popleft()[:2]] = ok

    def turns(self) -> tuple[Turn, ...]:
        """The finished turns, with the success of each call as far as a reply told."""
        return tuple(
            replace(t, tool_calls=tuple(replace(c, ok=self._answered.get((n, i))) for i, c in enumerate(t.tool_calls)))
            if t.tool_calls
            else t
            for n, t in enumerate(self._turns)
        )


def turns(messages: Any, verdict: Verdict = error_flag) -> tuple[Turn, ...]:
    """Chat messages as turns; what is no list of messages gives none, what is no message is kept as text."""
    t = TranscriptBuilder()
    for m in messages if isinstance(messages, list) else []:
        if not isinstance(m, dict):
            t.say("user", as_text(m))
            continue
        role = role_of(m.get("role"))
        if role == "tool":
            to = m.get("tool_call_id", m.get("id"))
            t.reply(said(m), to if isinstance(to, str) else None, verdict(m))
        elif role == "assistant":
            t.say(role, said(m), calls_of(m))
        else:
            t.say(role, said(m))
    return t.turns()
