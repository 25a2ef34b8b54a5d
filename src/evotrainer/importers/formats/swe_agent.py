"""SWE-agent trajectories (`.traj`): one JSON object with `trajectory` (steps), `history` (messages) and `info`.

Three generations: 0.x (steps with action, observation, response, thought; model patch in `info.submission`), 1.0 (adds
`replay_config`, an object or JSON text, with task, model and environment), 1.1 (steps with `query` and `tool_calls`;
retrying agents hold several `attempts`). The steps are what the policy did; the history is a view of them, cut for the
context window, so only the messages before the first action are taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.importers.base import AttemptFile, Fault, Skipped, Source
from evotrainer.importers.chat import Conversation, error_flag, turns
from evotrainer.importers.common import JsonValueImporter, digest, ident, kind_of, listing, mapping, plain, short, word
from evotrainer.importers.lenient_json import from_text, text
from evotrainer.importers.messages import message_text, role
from evotrainer.records.rollout import Finish, Rollout, Turn

FAULTS: dict[str, Fault] = {
    "exit_api": "model_api",
    "exit_environment_error": "container",
    "exit_error": "other",
    "early_exit": "cancelled",
    "skipped": "cancelled",
}
FINISHES: dict[str, Finish] = {
    "exit_cost": "turn_limit",
    "exit_total_execution_time": "turn_limit",
    "exit_command_timeout": "turn_limit",
    "exit_context": "length",
    "exit_format": "error",
    "exit_forfeit": "stop",
    "exit_command": "stop",
    "submitted": "stop",
    "max_steps": "turn_limit",
    "submit": "stop",
}
"""By exit status, MLGym's too (max_steps, submit). The limits on cost, time and context are the task's own, and a
policy that never keeps the format of its answers (exit_format) failed by itself."""
FAILED = re.compile(
    r"introduced new syntax error|^Traceback \(most recent call last\)|command not found|No such file or directory"
    r"|bash command contained syntax errors|syntax error near unexpected token|EXECUTION TIMED OUT"
    r"|was cancelled because it took more than|No replacement was performed|is not supported by this environment"
    r"|Permission denied|^usage: |^error: |^fatal: ",
    re.IGNORECASE | re.MULTILINE,
)
WORKED = re.compile(
    r"^\[File: |File updated|has been edited successfully|file created successfully|^Found \d+ match|ran successfully",
    re.IGNORECASE | re.MULTILINE,
)
SCANNED = 4000
"""Characters at either end of an observation in which signs of success and failure are looked for."""


class SweAgent(JsonValueImporter, AttemptFile):
    """Attempts of an SWE-agent trajectory file."""

    name = "swe_agent"
    about = "SWE-agent .traj: steps with action, observation and thought; exit status, submitted patch, replay config"
    asked = 60
    joined = True

    def recognises(self, source: Source) -> bool:
        first = source.first
        return isinstance(first, dict) and (
            _steps_of(first)
            or _is_demonstration(first)
            or any(_steps_of(a) for a in listing(first.get("attempts"))[:5] if isinstance(a, dict))
        )

    def attempts(self, path: Path, run: Any) -> Iterator[Any]:
        if not isinstance(run, dict):
            yield Skipped(path.name, "no trajectory: the JSON value is not an object")
            return
        attempts = [a for a in listing(run.get("attempts")) if isinstance(a, dict) and "trajectory" in a]
        for k, one in enumerate(attempts or [run]):
            place = f"attempts[{k}]" if attempts else "trajectory"
            # what an attempt lacks (environment, replay config) stands once, around all attempts
            merged = {**run, **one}
            yield f"{path.name}:{place}", partial(rollout, path, merged, k, place)


def _steps_of(run: dict[str, Any]) -> bool:
    steps = run.get("trajectory")
    if not isinstance(steps, list) or not isinstance(run.get("info", run.get("history")), dict | list):
        return False
    return all(isinstance(s, dict) and ("action" in s or "observation" in s) for s in steps[:5])


def _is_demonstration(run: dict[str, Any]) -> bool:
    """Is it a conversation without steps, as demonstrations are kept?"""
    messages = [m for m in listing(run.get("history"))[:3] if isinstance(m, dict)]
    return "trajectory" not in run and bool(messages) and all("role" in m and "agent" in m for m in messages)


def rollout(path: Path, run: dict[str, Any], k: int, place: str) -> Rollout | Skipped:
    """One attempt; a Skipped where it has no steps to read."""
    if not isinstance(run.get("trajectory"), list) and not _is_demonstration(run):
        return Skipped(f"{path.name}:{place}", "no list of steps under `trajectory`")
    info = mapping(run.get("info"))
    config = mapping(from_text(run.get("replay_config")))
    agent, problem = mapping(config.get("agent")), mapping(config.get("problem_statement"))
    stem = path.name.removesuffix(".traj")
    task = word(problem.get("id"), run.get("instance_id"), info.get("instance_id"), stem)
    folder = path.resolve().parent
    # one folder per instance in batch runs: its name is the instance's, its parent's the run's
    run_name = folder.parent.name if folder.name == stem else folder.name
    status = text(info.get("exit_status"))
    finish, kind = ending(status)
    if broken_off(run, info, status):
        kind = "other"
    patch = info.get("submission")
    found = {
        "patch": patch if isinstance(patch, str) else None,
        "exit_status": status,
        "environment": plain(run.get("environment")),
        "image": plain(mapping(mapping(config.get("env")).get("deployment")).get("image")),
        "edited_files": short(info.get("edited_files30")),
        "model_stats": plain(info.get("model_stats")),
    }
    return Rollout(
        id=ident(path, place, digest([run.get("trajectory", run.get("history")), info])),
        task=task,
        turns=_turns(run),
        reward=None,
        finish="error" if kind else finish,
        run=run_name,
        policy=word(mapping(agent.get("model")).get("name"), mapping(agent.get("model")).get("model_name")),
        group=f"{run_name}/{task}",
        k=k,
        error=(f"exit status {status}" if status else BROKEN_OFF) if kind else None,
        error_kind=kind,
        detail={"source": path.name, "record": place} | {k: v for k, v in found.items() if v not in (None, "", [], {})},
    )


BROKEN_OFF = "broken off: no exit status, nothing handed in"


def broken_off(run: dict[str, Any], info: dict[str, Any], status: str) -> bool:
    """Does a run's file end without saying how it ended: no exit status and nothing handed in, though it counts what
    the run cost? Files that never say so, as demonstrations, were not broken off."""
    return bool(not status and "model_stats" in info and not info.get("submission") and run.get("trajectory"))


def ending(status: str) -> tuple[Finish | None, Fault | None]:
    """(finish, class of fault) by exit status; "submitted (exit_x)" is a patch handed in after the attempt was cut,
    "evaluation_format_error (x)" and "submission_not_found (x)" of MLGym what was wrong with what was handed in."""
    name = status.strip().lower()
    cut = re.search(r"\((exit_\w+|max_steps|submit)\)", name)
    # how the attempt ended, not that a patch was taken from it all the same
    name = cut[1] if cut else name
    if name in FAULTS:
        return "error", FAULTS[name]
    if name in FINISHES:
        return FINISHES[name], None
    return ("error", kind_of(status)) if "error" in name or "exception" in name else (None, None)


def _turns(run: dict[str, Any]) -> tuple[Turn, ...]:
    if "trajectory" not in run:
        return turns(run["history"], lambda m: succeeded(text(m.get("content"))))
    t = Conversation(error_flag)
    steps = [s for s in run["trajectory"] if isinstance(s, dict)]
    for m in _opening(run, steps):
        # demonstrations shown to the policy are not what it did
        who = role(m.get("role"))
        t.add_turn(who if who == "system" else "user", message_text(m))
    for s in steps:
        action = text(s.get("action"))
        words = text(s.get("response")) or text(s.get("thought"))
        observation = text(s.get("observation"))
        calls = listing(s.get("tool_calls"))
        named = mapping(mapping(calls[0]).get("function")).get("name") if len(calls) == 1 else None
        if action.strip():
            # generations without tool calls: the command's first word is the tool
            name = named if isinstance(named, str) else action.split()[0]
            t.add_turn("assistant", words, [{"name": name, "arguments": action}])
            t.reply(observation, None, succeeded(observation))
        else:
            t.add_turn("assistant", words)
            if observation:
                t.add_turn("user", observation)
    return t.turns()


def _opening(run: dict[str, Any], steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages before the policy's first own one; of generations without a history, the first step's query."""
    history = [m for m in listing(run.get("history")) if isinstance(m, dict)]
    if not history and steps:
        history = [m for m in listing(steps[0].get("query")) if isinstance(m, dict)]
    out: list[dict[str, Any]] = []
    for m in history:
        if role(m.get("role")) == "assistant" and not m.get("is_demo"):
            break
        out.append(m)
    return out


def succeeded(observation: str) -> bool | None:
    """Did the command work, as far as what it printed tells?"""
    # signs stand at the beginning or the end; a page of source in between may quote any of them
    ends = observation[:SCANNED] + ("\n" + observation[-SCANNED:] if len(observation) > SCANNED else "")
    # failure first: an edit that "has been updated" may still say that it introduced a syntax error
    if FAILED.search(ends):
        return False
    return True if WORKED.search(ends) else None


IMPORTER = SweAgent()
