"""Sessions of Codex CLI: the JSON lines that it keeps below `~/.codex/sessions` as `rollout-*.jsonl`, and those that
`codex exec --json` prints.

A line is `{timestamp, type, payload}`: `session_meta` (id, version), `turn_context` (model, approval policy),
`response_item` (messages, calls, their outputs in the shape of Responses), `event_msg` (what the program showed: the
user's own words, token counts, how a turn ended), `compacted`. In the first versions a line was the item itself. From
0.144 on the model mostly calls `exec` with a script in JavaScript that calls the tools: what stands in it as text are
the commands and patches. The file holds no verdict and no reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import AttemptFile, Skipped, Source, given_id, task_of
from evotrainer.importers.common import Ending, attempt, digest, kind_of, listing, mapping, whole_number, word
from evotrainer.importers.lenient_json import from_text, text
from evotrainer.importers.lines import objects
from evotrainer.importers.messages import refused
from evotrainer.records.rollout import Rollout

_EXIT = re.compile(r"(?:^|\n)(?:Exit code:|Process exited with code) (-?\d{1,9})\b")
"""How a command ended, at the head of what Codex shows the model of its output."""
_TEXT = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)"""
_NAMED = re.compile(rf"\b(?:const|let|var)\s+(\w+)\s*=\s*(?:String\.raw)?{_TEXT}", re.DOTALL)
_CALLED = re.compile(r"\btools\.(\w+)\(")
_COMMAND = re.compile(rf"""["']?\b(?:cmd|command)\b["']?\s*:\s*(?:String\.raw)?(?:{_TEXT}|(\w+))""", re.DOTALL)
_GIVEN = re.compile(rf"""(?:\{{\s*["']?\w+["']?\s*:\s*)?(?:String\.raw)?(?:{_TEXT}|(\w+))""", re.DOTALL)
_EXIT_IN_SCRIPT = re.compile(r'"exit_code"\s*:\s*(-?\d{1,9})\b')


class Codex(AttemptFile):
    """The session of one file."""

    name = "codex"
    about = "Codex CLI sessions (rollout-*.jsonl): messages, commands and patches with their exit codes, tokens, model"
    asked = 120

    def recognises(self, source: Source) -> bool:
        first = source.first
        if not isinstance(first, dict):
            return False
        if isinstance(first.get("payload"), dict) and "timestamp" in first:
            return first.get("type") in ("session_meta", "turn_context", "response_item", "event_msg")
        if first.get("type") == "thread.started":
            return "thread_id" in first
        # the first versions: a line of the session, then items without a wrapping
        return {"id", "timestamp", "instructions"} <= first.keys() and b'"type"' in source.head

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        kept, unread = objects(path)
        yield from unread
        rows = [r for row in kept for r in _as_saved(row)]
        if not any(_item(r) for r in rows):
            yield Skipped(path.name, "a session without a message or a call")
            return
        yield attempt(path.name, lambda: _rollout(path, rows))


def _as_saved(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines that a kept session has for a printed one; of a kept session the line itself."""

    def line(outer: str, **payload: Any) -> dict[str, Any]:
        return {"type": outer, "payload": payload}

    kind, item = text(row.get("type")), mapping(row.get("item"))
    if kind == "thread.started":
        return [line("session_meta", id=row.get("thread_id"))]
    if kind == "turn.completed":
        usage = line("event_msg", type="token_count", info={"total_token_usage": row.get("usage")})
        return [usage, line("event_msg", type="task_complete")]
    if kind == "turn.failed":
        return [line("event_msg", type="error", message=mapping(row.get("error")).get("message"))]
    if kind != "item.completed":
        return [row]
    if item.get("type") in ("agent_message", "reasoning"):
        return [line("response_item", type="message", role="assistant", content=item.get("text"))]
    files = [mapping(c) for c in listing(item.get("changes"))]
    call: dict[str, Any]
    if files:  # as a patch has it; what changed in the files is not printed
        patch = [f"*** {text(c.get('kind')).capitalize()} File: {text(c.get('path'))}" for c in files]
        call = {"name": "apply_patch", "input": "\n".join(["*** Begin Patch", *patch, "*** End Patch"])}
    elif "command" in item:
        call = {"name": "exec_command", "arguments": {"cmd": item["command"]}}
    else:
        call = {"name": word(item.get("tool"), item.get("type")), "arguments": item.get("arguments")}
    shown = item.get("aggregated_output") or text(mapping(item.get("result")).get("content"))
    status = {"completed": True, "failed": False}.get(text(item.get("status")))
    output: Any = {"output": shown, "success": status, "metadata": {"exit_code": item.get("exit_code")}}
    output = "exec command rejected by user" if item.get("status") == "declined" else output
    id = item.get("id")
    called = line("response_item", type="custom_tool_call", call_id=id, **call)
    return [called, line("response_item", type="custom_tool_call_output", call_id=id, output=output)]


def _item(row: dict[str, Any]) -> dict[str, Any] | None:
    """The message, call or output of a line; None where it is none."""
    item = mapping(row.get("payload")) if "payload" in row else row
    kind = text(item.get("type"))
    is_item = row.get("type") == "response_item" if "payload" in row else True
    return item if is_item and (kind in ("message", "reasoning") or kind.endswith(("_call", "_call_output"))) else None


def _payloads(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [mapping(r.get("payload")) for r in rows if r.get("type") == kind]


def _rollout(path: Path, rows: list[dict[str, Any]]) -> Rollout:
    items = [x for r in rows if (x := _item(r)) is not None]
    events = _payloads(rows, "event_msg")
    meta: dict[str, Any] = next(iter(_payloads(rows, "session_meta")), rows[0])
    context: dict[str, Any] = next(reversed(_payloads(rows, "turn_context")), {})
    session = word(meta.get("id"), path.stem)
    asked = [text(e.get("message")).strip() for e in events if e.get("type") == "user_message"]
    talk = chat.Conversation()
    for item in items:
        for one in _scripted(item) or [item]:
            chat.add(talk, [_with_success(_by_whom(one, asked))])
    turns = talk.turns()
    finish, kind, error = _ending(events)
    usage = [mapping(mapping(e.get("info")).get("total_token_usage")) for e in events if e.get("type") == "token_count"]
    prompt = next(filter(None, asked), "") or next((t.text for t in turns if t.role == "user"), "")
    found = {
        "version": word(meta.get("cli_version")),
        "approval_policy": word(context.get("approval_policy")),
        "forked_from": word(meta.get("forked_from_id")),
    }
    return Rollout(
        id=given_id("codex", f"{session}/{digest(rows)}"),
        task=task_of(prompt or session),  # a printed session is without its prompt
        turns=turns,
        reward=None,
        finish=finish,
        run=path.resolve().parent.name,
        policy=word(context.get("model"), meta.get("model")),
        group="",
        tokens=next((n for u in reversed(usage) if (n := whole_number(u.get("output_tokens")))), None),
        error=error,
        error_kind=kind,
        detail={k: v for k, v in found.items() if v} | {"source": path.name, "record": session},
    )


def _scripted(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of tools that a script of `exec` makes with texts that stand in it; the first answers for all."""
    script = item.get("input")
    if item.get("type") != "custom_tool_call" or item.get("name") != "exec" or not isinstance(script, str):
        return []
    texts = {m[1]: _unquoted(m[2]) for m in _NAMED.finditer(script)}
    out: list[dict[str, Any]] = []
    called = list(_CALLED.finditer(script))
    for m, end in zip(called, [*(x.start() for x in called[1:]), len(script)], strict=False):
        shell = "exec" in m[1] or "shell" in m[1]
        found = _COMMAND.search(script, m.end(), end) if shell else _GIVEN.match(script, m.end(), end)
        patch = (_unquoted(found[1]) if found[1] else texts.get(found[2])) if found else None
        if patch is not None and (shell or m[1] == "apply_patch"):
            # as a call alone has it: a command in a field, a patch as it is
            given = {"arguments": {"cmd": patch}} if shell else {"input": patch}
            out.append({"type": "custom_tool_call", "name": m[1], **given})
    if out:
        out[0]["call_id"] = item.get("call_id")
    return out


def _unquoted(literal: str) -> str:
    """A text of JavaScript without its quotes and escapes."""
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), literal[1:-1], flags=re.DOTALL)


def _by_whom(item: dict[str, Any], asked: list[str]) -> dict[str, Any]:
    """The item; a user's message that no user typed (the environment, AGENTS.md) as the program's."""
    if item.get("role") != "user" or not asked or text(item.get("content")).strip() in asked:
        return item
    return item | {"role": "system"}


def _with_success(item: dict[str, Any]) -> dict[str, Any]:
    """The item; what a call printed as plain text, with whether the call succeeded where it says so."""
    if not text(item.get("type")).endswith("_call_output"):
        return item
    output, code, worked = item.get("output"), None, None
    if isinstance(output, str) and output[:1] == "{":
        output = from_text(output, output)
    if isinstance(output, dict):
        code = mapping(output.get("metadata")).get("exit_code")
        worked = output.get("success")
        output = next((output[k] for k in ("output", "content") if k in output), item["output"])
    words = text(output)
    scripted = words.startswith("Script ")
    if code is None and (status := (_EXIT_IN_SCRIPT if scripted else _EXIT).search(words[:1000])):
        code = int(status[1])
    if isinstance(code, int):
        worked = code == 0
    elif words.startswith(("apply_patch verification failed", "failed to ", "unsupported call", "Script failed")):
        worked = False
    known = {"is_error": not worked} if isinstance(worked, bool) and not refused(words) else {}
    return item | {"output": words} | known


def _ending(events: list[dict[str, Any]]) -> Ending:
    """(finish, class of fault, text) by the last event that ends a turn."""
    ends = ("task_complete", "turn_aborted", "error", "stream_error")
    last: dict[str, Any] = next((e for e in reversed(events) if e.get("type") in ends), {})
    if "error" not in text(last.get("type")):  # broken off by a human the work is unfinished, which is no fault
        return "stop" if last.get("type") == "task_complete" else None, None, None
    words = text(last.get("message")) or "error"
    kind = kind_of(words)
    return "error", "model_api" if kind == "other" else kind, words[:400]


IMPORTER = Codex()
