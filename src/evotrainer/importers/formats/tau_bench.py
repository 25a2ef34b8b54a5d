"""tau-bench and tau2-bench results.

tau-bench: a JSON list of {task_id, trial, reward, info, traj}; a run that raised is written with reward 0, no messages
and `info.error`, which here is a fault, not a zero. tau2-bench: an object with `info`, `tasks` and `simulations`, each
with `termination_reason` and `reward_info`; its user simulator may call tools too, which are no doing of the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Fault, LogFormat, Skipped, Source
from evotrainer.importers.chat import error_prefix, turns
from evotrainer.importers.common import (
    JsonValueImporter,
    digest,
    ident,
    kind_of,
    last_line,
    listing,
    mapping,
    plain,
    short,
    verdict,
    whole_number,
    word,
)
from evotrainer.importers.lenient_json import number, text
from evotrainer.importers.messages import as_text, call_of
from evotrainer.records.rollout import Finish, Rollout

DOMAINS = ("airline", "retail", "telecom", "mock", "banking_knowledge")
ENDS: dict[str, tuple[Finish | None, Fault | None]] = {
    "user_stop": ("stop", None),
    "agent_stop": ("stop", None),
    "max_steps": ("turn_limit", None),
    "timeout": ("turn_limit", None),
    "too_many_errors": ("turn_limit", None),
    "agent_error": ("error", None),
    "context_window_exceeded": ("length", None),
    "user_error": ("error", "other"),
    "unexpected_error": ("error", "other"),
    "infrastructure_error": ("error", "other"),
}
"""(finish, fault) by tau2's termination reason. Limits on steps, time and failed calls are the task's, and an agent's
own malformed message (agent_error) is the policy's doing; an error of the user simulator is not."""


class TauBench(JsonValueImporter, LogFormat):
    """Trials of a tau-bench or tau2-bench results file."""

    name = "tau_bench"
    about = "tau-bench and tau2-bench results JSON: conversations with tool calls, binary reward, termination reason"
    asked = 80
    own_ids = True

    def recognises(self, source: Source) -> bool:
        first = source.first
        if isinstance(first, list):
            row = mapping(first[0]) if first else {}
            return {"task_id", "reward", "traj"} <= row.keys()
        results = mapping(first)
        rows = results.get("simulations")
        if "info" not in results or not isinstance(rows, list) or not (rows or isinstance(results.get("tasks"), list)):
            return False
        return all({"task_id", "termination_reason"} <= mapping(r).keys() for r in rows[:3])

    def attempts(self, path: Path, data: Any) -> Iterator[Any]:
        if isinstance(data, list):
            for n, row in enumerate(data):
                yield f"{path.name}:[{n}]", partial(trial, path, row, n)
        elif isinstance(data, dict) and isinstance(data.get("simulations"), list):
            tasks = {word(mapping(t).get("id")): t for t in listing(data.get("tasks"))}
            for n, row in enumerate(data["simulations"]):
                yield f"{path.name}:simulations[{n}]", partial(simulation, path, data, tasks, row, n)
        else:
            yield Skipped(path.name, "no results: a list of trials, or an object with `simulations`, was expected")


def trial(path: Path, row: Any, n: int) -> Rollout | Skipped:
    """One record of tau-bench; a Skipped where it has neither a task id nor messages."""
    place = f"[{n}]"
    if not isinstance(row, dict) or not word(row.get("task_id")):
        return Skipped(f"{path.name}:{place}", "no trial: an object with a task_id was expected")
    info = mapping(row.get("info"))
    error, kind = None, None
    if info.get("error"):
        error = text(info["error"])
        # the message first; a traceback's last line only where the message names no class
        kind = kind_of(error, last_line(info.get("traceback")))
    reward = number(row.get("reward"))
    graded = mapping(info.get("reward_info"))
    parts = {k: number(v) for k, v in mapping(graded.get("info")).items() if isinstance(v, int | float)}
    # an episode that ended by itself carries its grading; one that ran out of steps carries none
    ended: Finish | None = None
    if "reward_info" in info:
        ended = "stop" if graded else "turn_limit"
    if kind:
        reward, parts, ended = None, {}, "error"
    domain = [d for d in DOMAINS if d in path.stem.lower()][:1]
    task = "/".join([*domain, word(row["task_id"])])
    found = {
        "task": plain(info.get("task")),
        "reward_info": plain(info.get("reward_info")),
        "traceback": short(info.get("traceback")),
    }
    return Rollout(
        id=ident(path, n, digest(row)),
        task=task,
        turns=turns(row.get("traj"), error_prefix),
        reward=reward,
        components=parts,
        outcome=verdict(reward if reward is None else abs(reward - 1) < 1e-6),
        finish=ended,
        run=path.stem,
        policy=path.stem,
        group=f"{path.stem}/{task}",
        k=whole_number(row.get("trial")) or 0,
        error=error,
        error_kind=kind,
        detail={"source": path.name, "record": place} | {k: v for k, v in found.items() if v not in (None, "", {})},
    )


def simulation(path: Path, data: dict[str, Any], tasks: dict[str, Any], row: Any, n: int) -> Rollout | Skipped:
    """One record of tau2-bench; a Skipped where it has no task id."""
    place = f"simulations[{n}]"
    if not isinstance(row, dict) or not word(row.get("task_id")):
        return Skipped(f"{path.name}:{place}", "no simulation: an object with a task_id was expected")
    info = mapping(data.get("info"))
    reason = text(row.get("termination_reason")).rsplit(".", 1)[-1].lower()
    finish, kind = ENDS.get(reason, (None, None))
    notes = mapping(row.get("info"))
    error = None
    # `infrastructure_error` and its like do not say what failed: the error's own words decide the class
    if kind:
        error = word(notes.get("error"), notes.get("error_message")) or reason
        kind = kind_of(error, word(notes.get("error_type")))
    graded = mapping(row.get("reward_info"))
    # the producer leaves such a simulation out of every denominator: its reward counts for nothing
    ungraded = kind is not None or reason == "context_window_exceeded"
    reward = None if ungraded else number(graded.get("reward"))
    key = word(row["task_id"])
    task = "/".join(filter(None, (word(mapping(info.get("environment_info")).get("domain_name")), key)))
    # tau2 names no run: what it was configured with, and when, tells runs apart
    run = digest([info, data.get("timestamp"), path.stem])
    found = {
        "termination_reason": reason,
        "reward_info": plain(row.get("reward_info")),
        "task": plain(mapping(tasks.get(key)).get("evaluation_criteria")),
        "info": plain(row.get("info")),
        "seconds": number(row.get("duration")),
    }
    return Rollout(
        id=ident(path, word(row.get("id")), n, digest(row)),
        task=task,
        turns=turns(_one_sided(row.get("messages")), error_flag_or_prefix),
        reward=reward,
        components={} if ungraded else {str(k): number(v) for k, v in mapping(graded.get("reward_breakdown")).items()},
        outcome=verdict(reward if reward is None else abs(reward - 1) < 1e-6),
        finish=finish,
        run=run,
        policy=word(mapping(info.get("agent_info")).get("llm"), path.stem),
        group=f"{run}/{task}",
        k=whole_number(row.get("trial")) or 0,
        error=error,
        error_kind=kind,
        detail={"source": path.name, "record": place} | {k: v for k, v in found.items() if v not in (None, "", {})},
    )


def error_flag_or_prefix(message: dict[str, Any]) -> bool | None:
    """tau2's replies say whether they are errors; older ones begin with "Error"."""
    return error_prefix(message) if message.get("error") is None else not message["error"]


def _one_sided(messages: Any) -> list[Any]:
    """The conversation as the policy took part in it: what the simulated user did with its own tools becomes text of
    the user; several replies in one message become several."""
    out: list[Any] = []
    for m in listing(messages):
        if isinstance(m, dict) and m.get("role") == "tool" and isinstance(m.get("tool_messages"), list):
            out += _one_sided(m["tool_messages"])
        elif isinstance(m, dict) and m.get("role") == "tool" and m.get("requestor") == "user":
            out.append({"role": "user", "content": m.get("content")})
        elif isinstance(m, dict) and m.get("role") == "user" and listing(m.get("tool_calls")):
            made = [f"{c.name}({as_text(c.arguments)})" for c in map(call_of, m["tool_calls"])]
            out.append({"role": "user", "content": [text(m.get("content")), *made]})
        else:
            out.append(m)
    return out


IMPORTER = TauBench()
