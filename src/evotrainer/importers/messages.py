"""One message of others' conversations, in any of the usual shapes: who speaks, what is said, which tools are called,
what tools replied. Every importer of messages reads them here.

Calls stand beside the content (OpenAI: `tool_calls`, `function_call`), among its blocks (Anthropic: `tool_use` and, in
the user's message, `tool_result`; Bedrock, Gemini), or as items without a role (Responses: `function_call` and
`function_call_output`).
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from evotrainer.importers.lenient_json import from_text, text
from evotrainer.records.rollout import Role

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "agent": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "environment": "tool",
}
_CALLS = frozenset({"tool_use", "server_tool_use"})
_HELD = ("toolUse", "functionCall", "toolResult", "functionResponse")
"""Keys of blocks without a type that hold a call or a reply (Bedrock, Gemini)."""
_OUTPUTS = ("error-text", "error-json", "text", "json", "content")
"""Types of a tool's result in AI SDK 5, the failures first."""
_ANSWERED = ("tool_use_id", "tool_call_id", "call_id", "toolUseId", "toolCallId")
_FUNCTION = re.compile(r"<function=([\w.-]+)>")
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_FENCE = re.compile(r"```(?:mswea_bash_command|bash|sh)[ \t]*\r?\n")
_LINE_FENCE = re.compile(r"^[ \t]{0,3}```", re.MULTILINE)
_REFUSED = re.compile(
    r"\s{0,9}(?:Error: )?(?:The user doesn't want to (?:proceed with this tool use|take this action)"
    r"|\[Request interrupted by user|User rejected tool use|Permission to use .{1,400}? has been denied"
    r"|(?:exec command|patch|tool call) rejected\b|(?:command )?aborted by user\b)"
)
"""What Claude Code and Codex reply in a tool's place where a human, or the permissions given, stopped a call."""
RETURNED = re.compile(r"<(?:returncode|exit_code)>\s*(-?\d{1,10})\s*</(?:returncode|exit_code)>")


class MessageReply(NamedTuple):
    """What a tool replied."""

    words: str
    to: str | None
    """Id of the call."""
    ok: bool | None
    """As the message itself says, else None."""
    raw: dict[str, Any] | None
    """Where the reply is an object."""


class Message(NamedTuple):
    role: Role
    words: str
    calls: list[Any]
    """Raw ones, see `call_of`."""
    replies: list[MessageReply]
    thought: bool
    """An item of reasoning, which belongs to the words or the call after it."""


class MessageCall(NamedTuple):
    name: Any
    arguments: Any
    id: Any
    ok: bool | None


def as_text(value: Any) -> str:
    """Text as it is; anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def refused(reply: str) -> bool:
    """Did a human refuse the call that this answers? Then it neither failed nor succeeded: it was not made."""
    return _REFUSED.match(reply) is not None


def role(value: Any) -> Role:
    """Role of a message; what is unknown counts as the environment's words, i.e. the user's."""
    return ROLES.get(value.lower(), "user") if isinstance(value, str) else "user"


def parse_message(m: dict[str, Any]) -> Message:
    """The message, or item of Responses, in the one form."""
    kind, named = m.get("type"), m.get("role", m.get("from"))
    if named is None and isinstance(kind, str) and kind != "message":
        if _is_call(m):
            return Message("assistant", "", [m], [], False)
        if _is_reply(m):
            return Message("tool", "", [], [_reply(m)], False)
        if kind == "reasoning":
            return Message("assistant", text(m.get("summary")) or text(m.get("content")), [], [], True)
    who = role("assistant" if named is None and kind == "message" else named)
    content = next((m[k] for k in ("content", "text", "value", "parts") if k in m), None if named else m)
    blocks = content if isinstance(content, list) else []
    inner = [b for b in blocks if isinstance(b, dict)]
    calls = [b for b in inner if _is_call(b)] if who == "assistant" else []
    replies = [_reply(b) for b in inner if _is_reply(b)]
    if calls or replies:
        content = [b for b in blocks if not isinstance(b, dict) or not (_is_call(b) or _is_reply(b))]
    words = text(content)
    thought = m.get("reasoning_content") or m.get("reasoning")
    if isinstance(thought, str):
        words = f"{thought}\n{words}" if words else thought
    if who == "tool" and not replies:
        raw = content if isinstance(content, dict) else None
        return Message(who, "", [], [MessageReply(words, _id(m), _worked(m), raw)], False)
    if who == "assistant":
        # some exporters keep a call in both places
        known = [call_of(c) for c in calls]
        calls += [c for c in extra_calls(m) if not any(_same(call_of(c), k) for k in known)]
    return Message(who, words, calls, replies, False)


def message_text(message: dict[str, Any]) -> str:
    """Text of a message, preceded by its reasoning where that is recorded apart."""
    m = parse_message(message)
    return "\n".join(p for p in (m.words, *(r.words for r in m.replies)) if p)


def extra_calls(m: dict[str, Any]) -> list[Any]:
    """Raw calls beside a message's content; the older single `function_call` too."""
    calls = m.get("tool_calls") or ([m["function_call"]] if isinstance(m.get("function_call"), dict) else [])
    return [c for c in calls if c is not None] if isinstance(calls, list) else [calls]


def _same(a: MessageCall, b: MessageCall) -> bool:
    """Are two calls of a message one? By their ids, where both have one."""
    if a.id and b.id:
        return bool(a.id == b.id)
    return bool(a.name == b.name) and from_text(a.arguments, a.arguments) == from_text(b.arguments, b.arguments)


def call_of(raw: Any) -> MessageCall:
    """A call in any of the usual shapes."""
    raw = from_text(raw, raw)  # some exporters write each call as JSON text within JSON
    if not isinstance(raw, dict):
        return MessageCall(text(raw), "", None, None)
    raw = next((raw[k] for k in _HELD if isinstance(raw.get(k), dict)), raw)
    # OpenAI nests name and arguments, Anthropic and our own form do not
    f = raw["function"] if isinstance(raw.get("function"), dict) else raw
    name = next((f[k] for k in ("name", "function", "function_name", "tool_name", "toolName") if f.get(k)), None)
    kind = str(raw.get("type"))
    if name is None and kind.endswith("_call"):
        name = kind.removesuffix("_call")
    keys = ("arguments", "args", "input", "parameters", "kwargs", "action", "queries", "code")
    given = next((f[k] for k in keys if f.get(k) is not None), None)
    ok = raw.get("ok")
    id = next((raw[k] for k in ("call_id", "id", *_ANSWERED) if isinstance(raw.get(k), str) and raw[k]), None)
    return MessageCall(name, given, id, ok if isinstance(ok, bool) else None)


def _kind(b: dict[str, Any]) -> str:
    kind = b.get("type")
    return kind.replace("-", "_") if isinstance(kind, str) else ""


def _is_call(b: dict[str, Any]) -> bool:
    kind = _kind(b)
    return kind in _CALLS or kind.endswith("_call") or any(isinstance(b.get(k), dict) for k in _HELD[:2])


def _is_reply(b: dict[str, Any]) -> bool:
    return _kind(b).endswith(("tool_result", "_call_output")) or any(isinstance(b.get(k), dict) for k in _HELD[2:])


def _reply(b: dict[str, Any]) -> MessageReply:
    held = next((b[k] for k in _HELD[2:] if isinstance(b.get(k), dict)), None)
    b = b if held is None else held
    shown = next((b[k] for k in ("content", "output", "response", "result") if b.get(k) is not None), None)
    failed = held is not None and b.get("status") == "error"
    words = None
    if isinstance(shown, dict) and "value" in shown:
        if shown.get("type") in _OUTPUTS:
            failed = failed or shown["type"] in _OUTPUTS[:2]
            shown = shown["value"]
        else:  # an object of the tool's own, no part of a message, whatever its type says
            words = as_text(shown)
    ok = False if failed else _worked(b)
    reply_text = text(shown) if words is None else words
    ok = None if refused(reply_text) else ok
    return MessageReply(reply_text, _id(b), ok, shown if isinstance(shown, dict) else None)


def _id(b: dict[str, Any]) -> str | None:
    return next((b[k] for k in _ANSWERED if isinstance(b.get(k), str) and b[k]), None)


def _worked(b: dict[str, Any]) -> bool | None:
    if isinstance(flag := b.get("is_error", b.get("isError")), bool):
        return not flag
    return False if b.get("type") == "tool_result" and b.get("status") == "error" else None


def written_calls(words: str, quoted: bool = False) -> list[MessageCall]:
    """Calls written as text between `<tool_call>` and `</tool_call>`: JSON with a name (Hermes, Qwen) or
    `<function=NAME>` with parameters (Qwen3-Coder). What is neither is none; what stands in code is `quoted`, and a
    call only where a reply says so."""
    out = []
    fenced, at, last_fence = False, 0, words.rfind("\n```")
    for piece in words.split("</tool_call>")[:-1]:
        at += len(piece) + len("</tool_call>")
        before, tag, written = piece.rpartition("<tool_call>")
        # a fence within a call is the call's own, e.g. of a file that it writes
        fenced ^= len(_LINE_FENCE.findall(before if tag else piece)) % 2 == 1
        # a fence that is not closed behind the call holds nothing
        in_code = fenced and last_fence >= at
        in_code = in_code or before[before.rfind("\n") + 1 :].replace("```", "").count("`") % 2 == 1
        if not tag or in_code != quoted:
            continue
        made = from_text(written)
        if isinstance(made, dict):
            if (call := call_of(made)).name:
                out.append(call)
        elif named := _FUNCTION.search(written):
            out.append(MessageCall(named[1], dict(_PARAMETER.findall(written)), None, None))
    return out


def fenced_command(words: str) -> str | None:
    """The one closed block of shell commands in a text; None where there is none or another one. Linear in the text."""
    out: list[str] = []
    at = 0
    while len(out) < 2 and (opened := _FENCE.search(words, at)):
        # from the newline of the opening line on: an empty block closes at once
        at = words.find("\n```", opened.end() - 1)
        if at < 0:
            break
        out.append(words[opened.end() : at])
        at += 4
    return out[0] if len(out) == 1 else None
