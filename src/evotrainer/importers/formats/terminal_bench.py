"""Terminal-Bench trials (`results.json`), with the recording of the terminal where it lies beside them.

A run of `tb` writes `<run>/<task>/<trial>/results.json` with `sessions/` and `panes/` below, and for the run itself
`results.json` (all its trials) and `run_metadata.json` (agent and model). `failure_mode` is upstream's enumeration
(terminal_bench/agents/failure_mode.py); `is_resolved` is null where no verdict came about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Fault, LogFormat, Skipped, Source, given_id
from evotrainer.importers.chat import Conversation, error_flag
from evotrainer.importers.common import (
    JsonValueImporter,
    digest,
    listing,
    mapping,
    plain,
    short,
    verdict,
    whole_number,
    word,
)
from evotrainer.importers.lenient_json import read_json_or_none, text
from evotrainer.importers.messages import RETURNED, fenced_command
from evotrainer.records.regular_file import open_regular
from evotrainer.records.rollout import Finish, Rollout, Turn

NAME = "results.json"
RUN = "run_metadata.json"
FINISHES: dict[str, Finish] = {
    "agent_timeout": "turn_limit",
    "context_length_exceeded": "length",
    "output_length_exceeded": "length",
    "fatal_llm_parse_error": "error",
}
"""Endings that are the policy's own."""
FAULTS: dict[str, Fault] = {
    "parse_error": "judge",
    "test_timeout": "timeout",
    "agent_installation_failed": "container",
    "unknown_agent_error": "other",
    "unknown": "other",
}
MAX_RECORDING = 1 << 24
"""Bytes of a recording that are read."""
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[\[(][0-9;?]{0,32}[a-zA-Z]|\x1b[=>]")
"""Control sequences of a terminal."""
_PROMPT = re.compile(r"^[\w.-]+@[\w.-]+:[^\n#$]{0,200}[#$] ?", re.MULTILINE)
_HARNESS = ("asciinema ", "clear", "exit", "export ", "tmux ")
_INSTALLS = "/installed-agent/"
_MISSING = re.compile(
    r"^(?:bash|sh|zsh): (?:line \d+: )?(\S+): (?:command not found|not found|No such file)", re.MULTILINE
)
_MINI = re.compile(
    r"^mini-swe-agent \(step \d+, \$[\d.]+\):\n(?P<said>.*?)(?:\nUser:\n(?P<seen>.*?))?(?=^mini-swe-agent \(step|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A step of mini-swe-agent as it prints itself."""
_STAMP = re.compile(r"\d{4}-\d\d-\d\d")


class TerminalBench(JsonValueImporter, LogFormat):
    """The attempt of one trial, or those of a run whose trials lie nowhere else."""

    name = "terminal_bench"
    about = "Terminal-Bench results.json of trials and runs: verdict, failure_mode, the terminal's recording beside it"
    asked = 100
    own_ids = True

    def one_reading(self, path: Path) -> Path | None:
        """`<run>/<task>/<trial>/results.json`, or `<run>/results.json`."""
        folder = path.parent
        of_trial = folder.name.startswith(f"{folder.parent.name}.")
        return None if path.is_dir() else folder.parent.parent if of_trial else folder

    def recognises(self, source: Source) -> bool:
        return _is_trial(source.first) or is_terminal_run(source.first)

    def attempts(self, path: Path, data: Any) -> Iterator[Any]:
        if _is_trial(data):
            yield path.name, lambda: _rollout(path, data, path.parent)
            return
        for n, trial in enumerate(listing(mapping(data).get("results")), 1):
            if not _is_trial(trial):
                yield Skipped(f"{path.name} result {n}", "no trial of Terminal-Bench: failure_mode and is_resolved")
            elif not (path.parent / text(trial.get("task_id")) / text(trial.get("trial_name")) / NAME).is_file():
                yield f"{path.name} result {n}", partial(_rollout, path, trial, None)


def _is_trial(value: Any) -> bool:
    return {"failure_mode", "is_resolved", "task_id", "trial_name"} <= mapping(value).keys()


def is_terminal_run(value: Any) -> bool:
    """Is it the `results.json` of a run?"""
    found = listing(mapping(value).get("results"))
    return bool(found) and _is_trial(found[0])


def _rollout(path: Path, trial: dict[str, Any], folder: Path | None) -> Rollout:
    """`folder`: the trial's own one, None where it was read from its run's file."""
    name, resolved = word(trial.get("trial_name")), trial.get("is_resolved")
    task, mode = word(trial.get("task_id"), name), text(trial.get("failure_mode")).strip().lower()
    run = folder.parent.parent if folder else path.parent
    policy = policy_of(run.resolve())
    recording = _recording(folder) if folder else ""
    turns, missing = _turns(text(trial.get("instruction")), recording)
    kind, error = FAULTS.get(mode), f"failure_mode: {mode}"
    if kind is None and resolved is None and mode not in FINISHES:
        kind, error = "other", f"no verdict (failure_mode: {mode or 'none'})"
    elif kind is None and missing and not resolved:
        kind, error = "container", f"the agent was never installed: {missing}"
    done = isinstance(resolved, bool) and not kind
    found = {
        "failure_mode": mode,
        "trial": name,
        "tests_status": plain(trial.get("parser_results")),
        "input_tokens": whole_number(trial.get("total_input_tokens")),
        "recording": "of the terminal" if recording else None,
    }
    return Rollout(
        id=given_id("terminal_bench", word(trial.get("id"), trial.get("uuid")) or f"{run.name}/{name}/{digest(trial)}"),
        task=task,
        turns=turns,
        reward=float(bool(resolved)) if done else None,
        outcome=verdict(resolved if done else None),
        finish="error" if kind else FINISHES.get(mode, "stop"),
        run=run.resolve().name,
        policy=policy,
        group=f"{policy}/{task}",
        tokens=whole_number(trial.get("total_output_tokens")) or None,
        error=error if kind else None,
        error_kind=kind,
        detail={"source": path.name, "record": name} | {k: v for k, v in found.items() if v not in (None, "", {})},
    )


def policy_of(run: Path) -> str:
    """Agent and model of a run's folder; where `run_metadata.json` does not name both, the folder that does."""
    known = mapping(read_json_or_none(run / RUN))
    agent, model = word(known.get("agent_name")), word(known.get("model_name"))
    if model:
        return f"{agent}/{model}" if agent else model
    # tb names a run by the time; whoever collects runs puts those of one agent into a folder of its own
    folder = run.parent.name if _STAMP.search(run.name) and run.parent.name not in ("", "runs") else run.name
    return f"{agent} ({folder})" if agent else folder


def _recording(trial: Path) -> str:
    """What the terminal showed, without control sequences."""
    for place in ("sessions/agent.log", "panes/post-agent.txt"):
        if (trial / place).is_file():
            with open_regular(trial / place) as f:
                raw = f.read(MAX_RECORDING).decode("utf-8", "replace")
            lines = _ESCAPES.sub("", raw).split("\n")
            # what a line held before the cursor went back to its beginning was written over
            return "\n".join(x.rstrip("\r").rpartition("\r")[2] for x in lines)
    return ""


def _turns(instruction: str, recording: str) -> tuple[tuple[Turn, ...], str]:
    """(turns, the shell's line where the agent's command was not found).

    An installed agent is one command of the terminal: what it printed is its own turn. Any other agent typed the
    commands itself.
    """
    t = Conversation(error_flag)
    if instruction:
        t.add_turn("user", instruction)
    shell, missing = _commands(recording), ""
    installed = any(_INSTALLS in command for command, _ in shell)
    started = not installed
    for command, printed in shell:
        if _INSTALLS in command:
            started = True
        elif not command or command.startswith(_HARNESS):
            continue
        elif not installed:
            t.add_turn("assistant", "", [{"name": "bash", "arguments": command}])
            if printed:
                t.reply(short(printed), None, None)
        elif started:
            gone = _MISSING.search(printed)
            if gone and gone[1].split("/")[-1] == command.split()[0].split("/")[-1]:
                missing = gone[0]
            elif steps := [*_MINI.finditer(printed)]:
                _mini(t, steps)
            elif printed:
                t.add_turn("assistant", printed)
    return t.turns(), missing


def _mini(t: Conversation, steps: list[re.Match[str]]) -> None:
    """The thoughts, commands and replies that mini-swe-agent printed."""
    for step in steps:
        words, seen = step["said"], (step["seen"] or "").split("\n────")[0].strip()
        command = fenced_command(words)
        calls = [] if command is None else [{"name": "bash", "arguments": command}]
        t.add_turn("assistant", words.split("```bash")[0].strip(), calls)
        if seen:
            code = RETURNED.search(seen)
            t.reply(short(seen), None, int(code[1]) == 0 if code else None)


def _commands(recording: str) -> list[tuple[str, str]]:
    """(command, what came back) of each prompt, in order; a command's further lines begin with "> "."""
    out = []
    marks = [*_PROMPT.finditer(recording)]
    ends = [m.start() for m in marks[1:]] + [len(recording)]
    for at, end in zip(marks, ends, strict=False):
        shown = recording[at.end() : end]
        lines = shown.split("\n")
        last = 1
        while last < len(lines) and lines[last].startswith("> "):
            last += 1
        command = "\n".join([lines[0], *(x[2:] for x in lines[1:last])])
        out.append((command.strip(), "\n".join(lines[last:]).strip()))
    return out


IMPORTER = TerminalBench()
