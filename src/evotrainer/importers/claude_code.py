"""Sessions of Claude Code: the JSON lines that it keeps of a session, or prints with `--output-format stream-json`.

One line for each block of a message: `type` user, assistant, system or result, `message` in the shape of Anthropic's
API, `sessionId` or `session_id`. What went wrong with the model's server stands in an assistant's line in its place
(`isApiErrorMessage`); a session that ends in one is no attempt that failed. Sidechains are other agents' talk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Fault, Skipped, Source, given_id, task_of
from evotrainer.importers.foreign import attempt, digest, mapping, whole_number, word
from evotrainer.importers.lines import values
from evotrainer.importers.tolerant import text
from evotrainer.importers.transcript import TranscriptBuilder, add, as_text
from evotrainer.records.rollout import Finish, Rollout, Turn

TYPES = frozenset({"user", "assistant"})
SYNTHETIC = "<synthetic>"
"""Model of what Claude Code says in the model's place."""
TOO_LONG = re.compile(r"prompt is too long|context (?:window|length)|exceeds? the context", re.IGNORECASE)
"""Words by which the context ran over: the policy's own ending."""
RESULTS: dict[str, tuple[Finish, Fault | None]] = {
    "success": ("stop", None),
    "error_max_turns": ("turn_limit", None),
    "error_max_budget_usd": ("turn_limit", None),
    "error_during_execution": ("error", "other"),
}
"""(finish, fault) by the subtype of the line of the result."""


class ClaudeCode:
    """The session of one file."""

    name = "claude_code"
    about = "Claude Code sessions (JSON lines): messages, tool calls, their results; sessions that end in an API error"

    def recognises(self, source: Source) -> bool:
        first = source.first
        if isinstance(first, dict) and "session_id" in first and first.get("type") in {*TYPES, "system", "result"}:
            return True
        # a kept session may begin with lines that are no messages
        return all(x in source.head for x in (b'"sessionId"', b'"type"', b'"message"', b'"role"'))

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        rows: list[dict[str, Any]] = []
        for place, row in values(path):
            if isinstance(row, Skipped):
                yield row
            elif not isinstance(row, dict):
                yield Skipped(f"{path.name}:{place}", "no line of a session: a JSON object was expected")
            else:
                rows.append(row)
        talk = [r for r in rows if _is_line(r) and not r.get("isSidechain") and not r.get("parent_tool_use_id")]
        if not talk:
            yield Skipped(path.name, "a session without messages of its own")
            return
        yield attempt(path.name, lambda: _rollout(path, rows, talk))


def _is_line(row: dict[str, Any]) -> bool:
    return row.get("type") in TYPES and isinstance(row.get("message"), dict)


def _rollout(path: Path, rows: list[dict[str, Any]], talk: list[dict[str, Any]]) -> Rollout:
    session = word(*(r.get("sessionId") or r.get("session_id") for r in talk)) or path.stem
    turns = _turns(talk)
    prompt = next((t.text for t in turns if t.role == "user"), "")
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


def _ending(last: dict[str, Any], result: dict[str, Any]) -> tuple[Finish | None, Fault | None, str | None]:
    """(finish, class of fault, text) by the last message, else by the line of the result."""
    said = text(last["message"].get("content")).strip() or as_text(last.get("error"))
    if last.get("isApiErrorMessage"):
        return ("length", None, None) if TOO_LONG.search(said) else ("error", "model_api", said[:400] or "API error")
    finish, kind = RESULTS.get(text(result.get("subtype")), (None, None))
    told = text(result.get("result"))
    if result.get("is_error") and kind is None and told.startswith("API Error"):
        return "error", "model_api", told[:400]
    if finish is None and last["type"] == "assistant":
        finish = "stop" if last["message"].get("stop_reason") in ("end_turn", "stop_sequence") else None
    return finish, kind, (told[:400] or f"result: {result['subtype']}") if kind else None


def _turns(talk: list[dict[str, Any]]) -> tuple[Turn, ...]:
    """Lines of one message are one turn; results of tools answer their calls by id."""
    t = TranscriptBuilder()
    at = 0
    while at < len(talk):
        row, content = talk[at], list[Any]()
        key = row["message"].get("id") if row["type"] == "assistant" else None
        while at < len(talk) and (talk[at] is row or (key and talk[at]["message"].get("id") == key)):
            mine = talk[at]["message"].get("content")
            content += mine if isinstance(mine, list) else [mine]
            at += 1
        if row.get("isApiErrorMessage") or row.get("isMeta"):
            continue
        add(t, {"role": row["type"], "content": content})
    return t.turns()


IMPORTER = ClaudeCode()
