"""OpenHands evaluations: `output.jsonl`, one instance a line, with its events.

Three generations of `history`: pairs of action and observation, a list of events (`action` or `observation`), and the
SDK's events (`kind`: ActionEvent, ObservationEvent, ...). `error` says how the agent's loop ended: some of it is the
policy's doing (stuck in a loop, out of iterations), the rest is not. `report`, where the evaluation was written back,
is the verdict: `resolved`, `error_eval`, `test_timeout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Fault, LogFormat, Skipped, Source
from evotrainer.importers.chat import Conversation, error_flag
from evotrainer.importers.common import (
    SWE_TASK,
    Ending,
    digest,
    ident,
    kind_of,
    listing,
    mapping,
    plain,
    short,
    verdict,
    word,
)
from evotrainer.importers.lenient_json import number, text
from evotrainer.importers.lines import Counters, records
from evotrainer.importers.messages import as_text
from evotrainer.records.rollout import Finish, Rollout, Turn

OWN: tuple[tuple[re.Pattern[str], Finish], ...] = (
    (re.compile(r"stuck in a loop|maximum (?:number of )?(?:iteration|budget)|max.?iterations", re.I), "turn_limit"),
    (re.compile(r"MalformedAction|NoAction|FunctionCallValidation|FunctionCallConversion", re.I), "error"),
)
"""Errors that are the policy's own, by their words, and how the attempt counts as ended."""
REPORTED: dict[str, tuple[Fault, str]] = {
    "error_eval": ("judge", "the evaluation ended in an error"),
    "test_timeout": ("timeout", "the tests ran out of time"),
}
SHOWN = 20_000
"""Characters of an observation that are kept."""


class OpenHands(LogFormat):
    """The instances of one evaluation."""

    name = "openhands"
    about = "OpenHands output.jsonl: instruction, history of events, git patch, error, report of the evaluation"
    asked = 130
    own_ids = True
    by_lines = True
    joined = True

    def recognises(self, source: Source) -> bool:
        r = source.first
        return isinstance(r, dict) and {"instance_id", "test_result"} <= r.keys() and "history" in r

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """One rollout a line."""
        count = Counters()
        return records(path, lambda r, n: _rollout(path, count, r, n))


def _rollout(path: Path, count: Counters, r: dict[str, Any], n: int) -> Rollout | str:
    task = word(r.get("instance_id"))
    if not task:
        return "it names no instance"
    metadata, result = mapping(r.get("metadata")), mapping(r.get("test_result"))
    turns = _turns(r)
    spoke = any(t.role == "assistant" for t in turns)
    report = mapping(r.get("report")) or mapping(result.get("report"))
    finish, kind, error = _ending(r, report, spoke)
    model = mapping(metadata.get("llm_config")) or mapping(metadata.get("llm"))
    policy = word(model.get("model"), metadata.get("model"))
    run = path.resolve().parent.name
    instance = mapping(r.get("instance"))
    found = {
        "patch": result.get("git_patch"),
        "agent": plain(metadata.get("agent_class")),
        "dataset": plain(metadata.get("dataset")),
        "report": plain(report),
        "ended": short(r.get("error"), 400) if not kind else None,
        "cost": number(mapping(r.get("metrics")).get("accumulated_cost")),
        **{own: plain(instance.get(name)) for name, own in SWE_TASK.items()},
    }
    group = f"{run}/{policy}/{task}"
    return Rollout(
        id=ident(path, n, digest(r)),
        task=task,
        turns=turns,
        reward=None,
        outcome=verdict(None if kind else report.get("resolved")),
        finish="error" if kind else finish,
        run=run,
        policy=policy,
        group=group,
        k=count.next(group),
        error=error,
        error_kind=kind,
        detail={"source": path.name, "record": n} | {k: v for k, v in found.items() if v not in (None, "", [], {})},
    )


def _ending(r: dict[str, Any], report: dict[str, Any], spoke: bool) -> Ending:
    """(finish, class of fault, text): of the agent's loop, else of the evaluation."""
    raised = text(r.get("error")).strip()
    finish: Finish | None = next((f for words, f in OWN if words.search(raised)), None)
    if raised and finish is None:
        return None, kind_of(raised[-2000:]), raised[:2000]
    if not spoke and not raised:
        return None, "other", "the agent left neither a word nor an error"
    for name, (kind, why) in REPORTED.items():
        if report.get(name) is True and report.get("resolved") is not True:
            return finish, kind, why
    return finish or "stop", None, None


def _turns(r: dict[str, Any]) -> tuple[Turn, ...]:
    t = Conversation(error_flag)
    events = [e for x in listing(r.get("history")) for e in (x if isinstance(x, list) else [x]) if isinstance(e, dict)]
    asked = text(r.get("instruction"))
    if asked and not any(_text(e) == asked for e in events[:8]):
        t.add_turn("user", asked)
    for e in events:
        _sdk_event(t, e) if "kind" in e else _event(t, e)
    return t.turns()


def _text(e: dict[str, Any]) -> str:
    message = mapping(e.get("llm_message")).get("content", mapping(e.get("args")).get("content"))
    return text(message) if message is not None else text(e.get("message"))


def _event(t: Conversation, e: dict[str, Any]) -> None:
    """An action or observation of OpenHands before its SDK."""
    args, source = mapping(e.get("args")), e.get("source")
    if "observation" in e:
        words, extras = text(e.get("content")), mapping(e.get("extras"))
        if e["observation"] in ("agent_state_changed", "null", "recall"):
            return
        to = mapping(e.get("tool_call_metadata")).get("tool_call_id")
        code = number(mapping(extras.get("metadata")).get("exit_code", extras.get("exit_code")))
        ok = e["observation"] != "error" if code is None else code == 0
        t.reply(short(words, SHOWN), to if isinstance(to, str) else None, ok)
        return
    kind = e.get("action")
    if kind in ("system", "change_agent_state", "recall", "null", None):
        if kind == "system":
            t.add_turn("system", text(args.get("content")))
        return
    if kind == "message":
        t.add_turn("assistant" if source == "agent" else "user", _text(e))
        return
    made = mapping(e.get("tool_call_metadata"))
    call = {"id": made.get("tool_call_id"), "name": word(made.get("function_name"), kind)}
    thought = word(args.get("thought"), args.get("final_thought"))
    # the arguments as the model wrote them; what the agent made of them where these are not kept
    response = mapping(next(iter(listing(mapping(made.get("model_response")).get("choices"))), None))
    calls = listing(mapping(response.get("message")).get("tool_calls"))
    own = next((mapping(c.get("function")) for c in calls if mapping(c).get("id") == call["id"]), {})
    given = own.get("arguments") or {k: v for k, v in args.items() if k not in _NOISE and v not in (None, "", -1)}
    t.add_turn("assistant", thought, [call | {"arguments": as_text(given)}])


_NOISE = frozenset((
    "thought", "blocking", "confirmation_state", "security_risk", "is_input", "hidden", "keep_prompt", "is_static",
    "final_thought", "kernel_init_code", "include_extra",
))  # fmt: skip


def _sdk_event(t: Conversation, e: dict[str, Any]) -> None:
    """An event of OpenHands' SDK."""
    kind = e["kind"]
    if kind == "MessageEvent":
        message = mapping(e.get("llm_message"))
        agent = e.get("source") == "agent" or message.get("role") == "assistant"
        t.add_turn("assistant" if agent else "user", text(message.get("content")))
    elif kind == "SystemPromptEvent":
        t.add_turn("system", text(e.get("system_prompt")))
    elif kind == "ActionEvent":
        call = mapping(e.get("tool_call"))
        made = mapping(call.get("function")) or call
        given = made.get("arguments") or {k: v for k, v in mapping(e.get("action")).items() if k != "kind"}
        name = word(e.get("tool_name"), made.get("name"))
        thoughts = [text(e.get("reasoning_content")), text(e.get("thought"))]
        raw = {"id": e.get("tool_call_id"), "name": name, "arguments": as_text(given)}
        t.add_turn("assistant", "\n".join(filter(None, thoughts)), [raw])
    elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
        seen, to = mapping(e.get("observation")), e.get("tool_call_id")
        words = text(seen.get("content", seen.get("output"))) or text(e.get("error"))
        code = number(seen.get("exit_code", mapping(seen.get("metadata")).get("exit_code")))
        failed = kind != "ObservationEvent" or seen.get("is_error") is True or code not in (None, 0)
        t.reply(short(words, SHOWN), to if isinstance(to, str) else None, not failed)


IMPORTER = OpenHands()
