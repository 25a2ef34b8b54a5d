"""mini-swe-agent trajectories (`.traj.json`).

Three generations: 0.x a bare list of messages; 1.x (`mini-swe-agent-1`) an object with `messages`, `info` (exit status,
submission, configuration) and `instance_id`, commands in one fenced block, replies as user messages with
`<returncode>`; 2.x (`mini-swe-agent-1.1` and later) commands under `extra.actions` or as tool calls, replies with
`extra.returncode`, a last message of role `exit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.importers.base import AttemptFile, Fault, Skipped, Source
from evotrainer.importers.chat import Conversation, error_flag
from evotrainer.importers.common import (
    JsonValueImporter,
    digest,
    ident,
    kind_of,
    last_line,
    listing,
    mapping,
    plain,
    word,
)
from evotrainer.importers.lenient_json import number, text
from evotrainer.importers.messages import RETURNED, as_text, call_of, fenced_command, message_text, parse_message, role
from evotrainer.records.rollout import Finish, Rollout, Turn

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
FINISHES: dict[str, Finish] = {
    "submitted": "stop",
    "limitsexceeded": "turn_limit",
    "timeexceeded": "turn_limit",
    "contextwindowexceedederror": "length",
    "contextwindowexceeded": "length",
    "formaterror": "error",
    "repeatedformaterror": "error",
}
FAULTS: dict[str, Fault] = {"userinterruption": "cancelled", "keyboardinterrupt": "cancelled"}
"""Exit statuses are names of exceptions: any that is neither here nor in FINISHES is a fault, classed by its words."""


class MiniSweAgent(JsonValueImporter, AttemptFile):
    """The attempt of one mini-swe-agent trajectory file."""

    name = "mini_swe_agent"
    about = "mini-swe-agent .traj.json: messages with bash commands and return codes, exit status, submitted patch"
    asked = 70
    joined = True

    def recognises(self, source: Source) -> bool:
        first = source.first
        if isinstance(first, dict):
            named = text(first.get("trajectory_format")).startswith("mini-swe-agent")
            return isinstance(first.get("messages"), list) and (named or "mini_version" in mapping(first.get("info")))
        return (
            isinstance(first, list)
            and source.suffix == ".traj.json"
            and bool(first)
            and all(isinstance(m, dict) and "role" in m and "content" in m for m in first[:5])
        )

    def attempts(self, path: Path, run: Any) -> Iterator[Any]:
        yield path.name, lambda: rollout(path, {"messages": run} if isinstance(run, list) else run)


def rollout(path: Path, run: Any) -> Rollout | Skipped:
    """The attempt; a Skipped where the file holds no messages."""
    messages = mapping(run).get("messages")
    if not isinstance(messages, list) or not any(isinstance(m, dict) for m in messages):
        return Skipped(path.name, "no trajectory: a list of messages was expected")
    info = mapping(run.get("info"))
    config = mapping(info.get("config"))
    last = mapping(mapping(messages[-1]).get("extra"))
    stem = path.name.removesuffix(".json").removesuffix(".traj")
    task = word(run.get("instance_id"), info.get("instance_id"), stem)
    folder = path.resolve().parent
    # batch runs write <run>/<instance>/<instance>.traj.json, single ones <run>/<instance>.traj.json
    run_name = folder.parent.name if folder.name == stem else folder.name
    status = word(info.get("exit_status"), last.get("exit_status"))
    finish, kind = ending(status, last_line(info.get("traceback")))
    model = mapping(config.get("model"))
    patch = word(info.get("submission"), last.get("submission"))
    transcript = _turns(messages)
    # 0.x recorded no exit status: the submitting command is how an attempt ended well
    if not status and (handed_in := _handed_in(transcript)) is not None:
        finish, patch = "stop", patch or handed_in
    found = {
        "patch": patch,
        "exit_status": status,
        "format": plain(run.get("trajectory_format")),
        "version": plain(info.get("mini_version")),
        "image": plain(mapping(config.get("environment")).get("image")),
        "model_stats": plain(info.get("model_stats")),
    }
    return Rollout(
        id=ident(path, digest([messages, info])),
        task=task,
        turns=transcript,
        reward=None,
        finish=finish,
        run=run_name,
        policy=word(model.get("model_name"), model.get("name")),
        group=f"{run_name}/{task}",
        error=last_line(info.get("traceback")) or f"exit status {status}" if kind else None,
        error_kind=kind,
        detail={"source": path.name, "record": "messages"}
        | {k: v for k, v in found.items() if v not in (None, "", {})},
    )


def ending(status: str, trace: str) -> tuple[Finish | None, Fault | None]:
    """(finish, class of fault) by exit status, with the last line of the traceback where there is one."""
    name = status.strip().lower()
    if not name:
        return None, None
    if name in FINISHES:
        return FINISHES[name], None
    return "error", FAULTS.get(name) or kind_of(status, trace)


def _turns(messages: list[Any]) -> tuple[Turn, ...]:
    t = Conversation(error_flag)
    waiting = 0
    for m in messages:
        if not isinstance(m, dict):
            t.add_turn("user", as_text(m))
            continue
        extra = mapping(m.get("extra"))
        who = role(m.get("role"))
        if who == "assistant":
            calls = _commands(m, extra)
            t.add_turn(who, message_text(m), calls)
            waiting = len(calls)
        # in 1.x replies come as user messages: as many as there were commands are replies, the rest is talk
        elif who == "tool" or (who == "user" and waiting and m.get("role") != "exit"):
            to = m.get("tool_call_id")
            t.reply(message_text(m), to if isinstance(to, str) else None, _worked(text(m.get("content")), extra))
            waiting = max(waiting - 1, 0)
        elif m.get("role") != "exit":
            t.add_turn(who, message_text(m))
    return t.turns()


def _handed_in(turns: tuple[Turn, ...]) -> str | None:
    """What the reply to the submitting command holds; None where the attempt does not end in one."""
    done = len(turns) > 1 and turns[-1].role == "tool" and any(SUBMIT in c.arguments for c in turns[-2].tool_calls)
    return turns[-1].text if done else None


def _commands(m: dict[str, Any], extra: dict[str, Any]) -> list[Any]:
    """Commands of a message as calls of `bash`: recorded actions, else tool calls, else the one fenced block."""
    if actions := listing(extra.get("actions")):
        made = [a if isinstance(a, dict) else {"command": a} for a in actions]
        return [{"name": "bash", "arguments": as_text(a.get("command", a)), "id": call_of(a).id} for a in made]
    if calls := parse_message(m).calls:
        return calls
    # the agent itself refuses a message with two blocks and asks again
    command = fenced_command(text(m.get("content")))
    return [] if command is None else [{"name": "bash", "arguments": command}]


def _worked(reply: str, extra: dict[str, Any]) -> bool | None:
    code = number(extra.get("returncode")) if "returncode" in extra else None
    if code is None and (found := RETURNED.search(reply[:2000])):
        code = float(found[1])
    if code is None:
        return False if extra.get("exception_info") or "timed out and has been killed" in reply[:2000] else None
    return code == 0


IMPORTER = MiniSweAgent()
