"""Sessions of Claude Code: the JSON lines that it keeps of a session, or prints with `--output-format stream-json`.

One line for each block of a message: `type` user, assistant, system or result, `message` in the shape of Anthropic's
API, `sessionId` or `session_id`. What went wrong with the model's server stands in an assistant's line in its place
(`isApiErrorMessage`); a session that ends in one is no attempt that failed. Sidechains are other agents' talk. `/clear`
ends an attempt, and what follows is another; `/compact` does not: the model goes on from its own summary. A session
that was resumed may lie in a second file, which repeats the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import HEAD, AttemptFile, Fault, Skipped, Source, given_id, task_of
from evotrainer.importers.common import Ending, attempt, digest, mapping, whole_number, word
from evotrainer.importers.lenient_json import beginning, text
from evotrainer.importers.lines import objects
from evotrainer.importers.messages import as_text
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.rollout import Finish, Rollout, Turn

TYPES = frozenset({"user", "assistant"})
SYNTHETIC = "<synthetic>"
"""Model of what Claude Code says in the model's place."""
RESULTS: dict[str, tuple[Finish, Fault | None]] = {
    "success": ("stop", None),
    "error_max_turns": ("turn_limit", None),
    "error_max_budget_usd": ("turn_limit", None),
    "error_during_execution": ("error", "other"),
}
"""(finish, fault) by the subtype of the line of the result."""


_COMMAND = re.compile(r"\s*(?:<command-(?:message|args)>[^<]*</command-(?:message|args)>\s*)*<command-name>(/[^<]*)<")
_PRINTED = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")
_MESSAGE_ID = re.compile(rb'"id":\s?"(msg_[\w-]+)"')


class ClaudeCode(AttemptFile):
    """The attempts of one file."""

    name = "claude_code"
    about = "Claude Code sessions (JSON lines): messages, tool calls, their results; sessions that end in an API error"
    asked = 110

    def recognises(self, source: Source) -> bool:
        first = source.first
        if isinstance(first, dict) and "session_id" in first and first.get("type") in {*TYPES, "system", "result"}:
            return True
        # a kept session may begin with lines that are no messages
        return all(x in source.head for x in (b'"sessionId"', b'"type"', b'"message"', b'"role"'))

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        kept, unread = objects(path)
        yield from unread
        # newer versions keep the program's own commands as lines of the system
        rows = [r | {"type": "user", "message": r} if r.get("subtype") == "local_command" else r for r in kept]
        talk = [r for r in rows if r.get("type") in TYPES and isinstance(r.get("message"), dict)]
        talk = [r for r in talk if not r.get("isSidechain") and not r.get("parent_tool_use_id")]
        # a resumed session may repeat lines
        talk = list({digest([r["uuid"], r["message"]]) if "uuid" in r else i: r for i, r in enumerate(talk)}.values())
        attempts = list(filter(None, _attempts(talk)))
        if not attempts:
            yield Skipped(path.name, "a session without messages of its own")
        elif (longer := _continued(path, talk)) is not None:
            yield Skipped(path.name, f"the session was resumed: {longer.name} holds all of it and goes on")
        else:
            for i, some in enumerate(attempts):
                last = rows if i == len(attempts) - 1 else []
                yield attempt(path.name, lambda some=some, last=last: _rollout(path, last, some))  # type: ignore[misc]


def _typed(row: dict[str, Any]) -> str:
    content = row["message"].get("content")
    return text(content) if row["type"] == "user" and "toolUseResult" not in row else ""


def _attempts(talk: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Lines of each attempt: between two `/clear`, without commands that the program itself carried out. Of a command
    that stands for a prompt the prompt follows, as a line of its own (`isMeta`)."""
    out: list[list[dict[str, Any]]] = [[]]
    for row, after in zip(talk, [*talk[1:], {}], strict=False):
        command = _COMMAND.match(words := _typed(row))
        if command and command[1] == "/clear":
            out.append([])
        elif (
            "subtype" in row or words.startswith(_PRINTED) or (command and after and _typed(after).startswith(_PRINTED))
        ):
            continue
        elif not row.get("isMeta") or (out[-1] and _COMMAND.match(_typed(out[-1][-1]))):
            out[-1].append(row)
    return out


def _continued(path: Path, talk: list[dict[str, Any]]) -> Path | None:
    """A larger session of the folder that begins with the same message and holds the last one, too."""
    ids = [i for r in talk if r["type"] == "assistant" and (i := word(r["message"].get("id"))).startswith("msg_")]
    if not ids:
        return None
    folder, size = path.parent, path.stat().st_size
    known = _sessions(folder, folder.stat().st_mtime_ns)
    same = (p for p, length, first in known if length > size and first == ids[0].encode())
    return next((p for p in same if ids[-1].encode() in read_bytes(p, p.stat().st_size + (1 << 20))), None)


@lru_cache(maxsize=64)
def _sessions(folder: Path, changed: int) -> tuple[tuple[Path, int, bytes], ...]:
    """(file, bytes, id of the first reply) of each session of a folder; `changed`: for the cache."""
    files = [p for p in sorted(folder.glob("*.jsonl")) if p.is_file()]
    first = [_MESSAGE_ID.search(beginning(p, HEAD)) for p in files]
    return tuple((p, p.stat().st_size, m[1] if m else b"") for p, m in zip(files, first, strict=True))


def _rollout(path: Path, rows: list[dict[str, Any]], talk: list[dict[str, Any]]) -> Rollout:
    session = word(*(r.get("sessionId") or r.get("session_id") for r in talk)) or path.stem
    turns = _turns(talk)
    prompt = next((t.text for t in turns if t.role == "user"), turns[0].text if turns else "")
    models = [m for r in talk if (m := word(r["message"].get("model"))) and m != SYNTHETIC]
    result: dict[str, Any] = next((r for r in reversed(rows) if r.get("type") == "result"), {})
    finish, kind, error = _ending(talk[-1], result)
    # a message of several blocks stands in several lines, each with what the whole message took
    used: dict[str, int | None] = {}
    for r in talk:
        used[word(r["message"].get("id"), r.get("uuid"))] = whole_number(
            mapping(r["message"].get("usage")).get("output_tokens")
        )
    found = {"version": word(talk[0].get("version")), "result": word(result.get("subtype"))}
    return Rollout(
        id=given_id("claude_code", f"{session}/{digest([r.get('uuid') for r in talk])}"),
        task=task_of(prompt),
        turns=turns,
        reward=None,
        finish=finish,
        run=path.resolve().parent.name,
        policy=max(models, key=models.count) if models else "",
        group="",
        tokens=sum(x or 0 for x in used.values()) or None,
        error=error,
        error_kind=kind,
        detail={"source": path.name, "record": session} | {k: v for k, v in found.items() if v},
    )


def _ending(last: dict[str, Any], result: dict[str, Any]) -> Ending:
    """(finish, class of fault, text) by the last message, else by the line of the result."""
    last_text = text(last["message"].get("content")).strip() or as_text(last.get("error"))
    if last.get("isApiErrorMessage"):
        return "error", "model_api", last_text[:400] or "API error"
    finish, kind = RESULTS.get(text(result.get("subtype")), (None, None))
    result_text = text(result.get("result"))
    if result.get("is_error") and kind is None and result_text.startswith("API Error"):
        return "error", "model_api", result_text[:400]
    if finish is None and last["type"] == "assistant":
        finish = "stop" if last["message"].get("stop_reason") in ("end_turn", "stop_sequence") else None
    return finish, kind, (result_text[:400] or f"result: {result['subtype']}") if kind else None


def _turns(talk: list[dict[str, Any]]) -> tuple[Turn, ...]:
    """Lines of one message are one turn; results of tools answer their calls by id."""
    t = chat.Conversation(chat.error_flag)
    at = 0
    while at < len(talk):
        row, content = talk[at], list[Any]()
        key = row["message"].get("id") if row["type"] == "assistant" else None
        while at < len(talk) and (talk[at] is row or (key and talk[at]["message"].get("id") == key)):
            mine = talk[at]["message"].get("content")
            content += mine if isinstance(mine, list) else [mine]
            at += 1
        if not row.get("isApiErrorMessage"):
            # a summary was written by the model and is put before it by the program
            chat.add(t, {"role": "system" if row.get("isCompactSummary") else row["type"], "content": content})
    return t.turns()


IMPORTER = ClaudeCode()
