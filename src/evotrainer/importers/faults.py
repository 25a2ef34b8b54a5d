"""Faults that a foreign record names in a field of its own: one reading of such fields for every format.

Precise before complete, because a rollout that is called a fault loses its reward. A field counts that names what broke
(the judge, the container, the model's server) and that it broke, on a rollout that earned nothing; a scoring model's
reply that is there and says nothing; an exception where the policy never came to speak. Whatever else speaks of errors
is the audit's to ask about (`evotrainer audit --fault COLUMN`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from evotrainer.importers.base import Fault
from evotrainer.importers.foreign import kind_of, last_line, mapping, word
from evotrainer.importers.tolerant import text
from evotrainer.records.rollout import Rollout, turn_text

Silence = Literal["empty", "filtered", "errored", "unparsable"]
"""What a scoring model's reply is where it gives no verdict."""

NESTED = ("info", "metadata", "extra", "extra_info", "state", "result", "judge", "verifier", "grader")
"""Mappings of a record whose fields are read like its own."""
NO = frozenset(
    {"", "none", "null", "no", "false", "0", "unset", "ok", "nan", "n/a", "success", "completed", "[]", "{}"}
)
"""Words by which a field says that nothing happened, in lower case."""
_JUDGE = frozenset({"judge", "judges", "grader", "grading", "verifier", "scorer", "rewardmodel"})
_PHASE = frozenset({"eval", "evaluation", "evaluator", "verification", "scoring"})
"""Grading as a phase: what goes wrong in it may be the program that is graded; its time limit and its crash are not."""
_PLACE = frozenset({"container", "docker", "sandbox", "environment", "env", "infra", "infrastructure", "kubernetes"})
_SETUP = frozenset({"installation", "install", "setup", "startup", "provisioning"})
_SERVER = frozenset({"llm", "ratelimit", "provider", "overloaded", "server", "inference", "connection"})
_POLICYS = frozenset(
    ["code", "program", "solution", "tool", "answer", "format", "syntax", "compile", "submission", "patch", "candidate"]
)
"""Words of what the policy made: an error of it is its own."""
_OWN = frozenset({"parse", "parsing", "test", "tests", "context", "length", "judge", "passed", "assertion"})
"""Words beside which a failure is the ordinary end of a bad attempt."""
_BROKE = frozenset((
    "error", "errors", "errored", "exception", "crash", "crashed", "unavailable", "invalid", "timeout",
    "unparsable", "unreachable",
))  # fmt: skip
_FAILED = frozenset({"failed", "failure", "fail"})
"""Said of a container they tell of a fault; said of a judge they may be its verdict."""
_UNKNOWN = frozenset({"unknown", "unexpected", "internal", "unhandled", "uncaught"})
_MODE = frozenset({"mode", "reason", "type", "kind", "status", "class", "category"})
_MODES = frozenset((
    "failure", "fail", "error", "exception", "exit", "termination", "terminate", "stop", "end", "ending",
    "finish", "outcome", "fault", "abort",
))  # fmt: skip
_STATES = frozenset({"status", "state", "result", "verdict", "label"})
"""Names of fields that say how a trial ended, and much else: only a value that names the fault itself counts."""
_TOLD = ("detail", "details", "reason", "message", "error", "note")
"""Fields beside such a one in which its words stand."""
_RAISED = frozenset({"error", "exception", "traceback"})
_REPLY = frozenset({"response", "reply", "output", "completion", "raw", "text", "message", "answer"})
_COUNTS = frozenset({"num", "n", "count", "rate", "share", "prob", "mean", "max", "min", "total"})


@lru_cache(maxsize=4096)
def words_of(name: str) -> frozenset[str]:
    """Words of a field's name or of a short value, in lower case; spellings of timeout, reward model and rate limit as
    one word."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name[:200])
    low = " ".join(re.findall(r"[a-z0-9]+", spaced.lower()))
    low = re.sub(r"\btime(?:d)? ?out\b", "timeout", low)
    return frozenset(re.sub(r"\b(reward) (model)\b|\b(rate) (limit)\b", r"\1\2\3\4", low).split())


def broken(words: frozenset[str], whole: bool = False) -> Fault | None:
    """Class of the fault that a field's words name; None where they name none, or may name the policy's own. `whole`:
    they say why the trial as a whole ended, where a program's own time limit in the sandbox is not what is meant."""
    if not words & (_BROKE | _FAILED) or words & _COUNTS:
        return None
    judge = bool(words & _JUDGE)
    if words & _POLICYS and not judge:
        return None
    if judge:
        return "judge" if words & _BROKE else None
    if words & (_PLACE | _SETUP):
        return "container" if whole or words & (_BROKE | _FAILED) - {"timeout", "invalid"} else None
    if words & _SERVER:
        return "model_api"
    if words & _PHASE and words & {"timeout", "crash", "crashed", "unavailable", "unreachable"}:
        return "judge"
    return None


def asked(words: frozenset[str]) -> bool:
    """Do a field's words speak of an error or a timeout, without saying whose it is? Worth a question, no more."""
    broke = _BROKE | {"aborted", "oom", "killed", "failed", "failure", "interrupted", "cancelled"}
    return bool(words & broke) and not words & (_COUNTS | _POLICYS | _OWN)


def ending(words: frozenset[str]) -> Fault | None:
    """The same of a value that says why a trial ended: there a time limit of the tests means that no verdict came, and
    an error that nobody foresaw is not the policy's."""
    if kind := broken(words, whole=True):
        return kind
    if words & {"cancelled", "canceled", "interrupted", "keyboardinterrupt"}:
        return "cancelled"
    if "timeout" in words and words & {"test", "tests"}:
        return "timeout"
    if words & _UNKNOWN and words & {"error", "exception"} and not words & _POLICYS:
        return "other"
    return None


@dataclass(frozen=True, slots=True)
class FieldName:
    """What a field's name alone says, so that it is taken apart once."""

    words: frozenset[str]
    kind: Fault | None
    mode: bool
    state: bool
    raised: bool


@lru_cache(maxsize=4096)
def about(key: str) -> FieldName | None:
    """None where the name speaks of no fault, as nearly all do."""
    words = words_of(key)
    kind, mode = broken(words), bool(words & _MODE and words & _MODES)
    raised = bool(words & _RAISED) and not words & _COUNTS
    state = bool(words) and words <= _STATES
    known = kind or mode or state or raised or words & _JUDGE
    return FieldName(words, kind, mode, state, raised) if known else None


def named_fault(record: Mapping[str, Any], spoke: bool) -> tuple[Fault, str] | None:
    """(class, what says so) of the fault that a record's own fields name; None where none does.

    `spoke`: did the policy say or do anything? Ask only of rollouts that earned nothing.
    """
    raised = None
    for part in (record, *(v for k in NESTED if isinstance(v := record.get(k), dict))):
        for key, value in part.items():
            name = about(key) if isinstance(key, str) else None
            if name is None or value is None or value is False:
                continue
            if found := _named(name, key, value) or _stated(name, key, value, part):
                return found
            if not spoke and name.raised and raised is None:
                raised = _raised(key, value)
    return raised


def _named(name: FieldName, key: str, value: Any) -> tuple[Fault, str] | None:
    if name.words & _JUDGE and (silence := _silent(name.words, value)):
        return "judge", f"{key}: the judge's reply is {silence}"
    if not says_so(value):
        return None
    if name.kind:
        return name.kind, f"{key}: {text(value)[:400] or value}"
    if name.mode and isinstance(value, str) and (kind := ending(words_of(value))):
        return kind, f"{key}: {value[:400]}"
    return None


def _stated(name: FieldName, key: str, value: Any, part: Mapping[str, Any]) -> tuple[Fault, str] | None:
    """A status such as `infra_fail`; the fields beside it say of what kind."""
    if not name.state or not isinstance(value, str) or len(value) > 60:
        return None
    kind = broken(words_of(value), whole=True)
    if kind is None:
        return None
    told = next((x for k in _TOLD if (x := text(part.get(k)).strip())), "")
    better = kind_of(told) if told else "other"
    return kind if better == "other" else better, f"{key}: {value}" + (f", {told[:400]}" if told else "")


def _raised(key: str, value: Any) -> tuple[Fault, str] | None:
    """What ended a run before the policy came to speak, by the words of the exception."""
    if not isinstance(value, str | dict) or not says_so(value):
        return None
    told = text(value) or str(value)
    if told.strip().lower() in ("other", "unknown"):  # classes of an error, and no error
        return None
    return kind_of(last_line(told) or told), f"{key}: {told[:400]} (before the first turn)"


def says_so(value: Any) -> bool:
    """Does the value of an error's field say that there was one? Numbers: 1 alone."""
    if isinstance(value, str):
        return value.strip().lower() not in NO
    if isinstance(value, bool | int | float):
        return value == 1
    return bool(value)


def _silent(words: frozenset[str], value: Any) -> Silence | None:
    if isinstance(value, str):
        return "empty" if words & _REPLY and not value.strip() else None
    replies = value if isinstance(value, list) else [value]
    return next((s for x in replies[:64] if isinstance(x, dict) and (s := silence(x))), None)


def silence(reply: dict[str, Any]) -> Silence | None:
    """What is wrong with a scoring model's reply in the shape of chat completions, responses or Inspect; None where it
    says something, or is of no shape known here."""
    inner = reply.get("response")
    if isinstance(inner, dict):
        found = silence(inner)
        label = next((k for k in reply if words_of(k) & {"verdict", "grade", "label"}), None)
        return found or ("unparsable" if label and reply[label] is None else None)
    if not any(isinstance(reply.get(k), list) for k in ("choices", "output")):
        return None
    if reply.get("error") or reply.get("status") in ("failed", "cancelled"):
        return "errored"
    listed = reply["choices"] if isinstance(reply.get("choices"), list) else reply["output"]
    items = [x for x in listed[:64] if isinstance(x, dict)]
    stops = [mapping(reply.get("incomplete_details")).get("reason")]
    stops += [x.get(k) for x in items for k in ("finish_reason", "stop_reason")]
    if "content_filter" in stops:
        return "filtered"
    return None if any(map(_says, items)) else "empty"


def _says(item: dict[str, Any]) -> bool:
    """Does one choice or output item hold words, or a call (some judges answer by calling a function)?"""
    message = mapping(item.get("message")) or item
    called = message.get("tool_calls") or message.get("function_call") or word(item.get("type")).endswith("_call")
    return bool(called) or bool(text(message.get("content")).strip())


def with_named_fault(r: Rollout) -> Rollout:
    """The rollout as a fault where its own fields name one and it earned nothing; else as it is."""
    if r.error_kind or len(r.detail) <= 2 or (r.reward or 0.0) > 0 or r.outcome == "correct":
        return r
    found = named_fault(r.detail, _spoke(r))
    return r if found is None else as_fault(r, *found)


def as_fault(r: Rollout, kind: str, why: str) -> Rollout:
    """The rollout without reward, components and outcome; what it was paid is kept in its detail."""
    kept = {"reward_of_fault": r.reward} if r.reward is not None else {}
    return replace(
        r, reward=None, components={}, outcome="unknown", error=why, error_kind=kind, detail={**r.detail, **kept}
    )


def _spoke(r: Rollout) -> bool:
    turns: Iterable[Any] = r.turns
    return any(t.role == "assistant" and (t.tool_calls or turn_text(t).strip()) for t in turns)
