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
from typing import Any

from evotrainer.importers.base import Fault
from evotrainer.importers.foreign import kind_of, last_line, ran_over, says_so, words_of
from evotrainer.importers.judges import JUDGE, cut_off, doubtful, silent, stands, undecided
from evotrainer.importers.tolerant import text
from evotrainer.records.rollout import Rollout, turn_text

NESTED = ("info", "metadata", "extra", "extra_info", "state", "result", "judge", "verifier", "grader")
"""Mappings of a record whose fields are read like its own."""
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
_SKIPPED = frozenset({"skipped", "skip", "bypassed"})
_CALLED = frozenset({"called", "asked", "used", "ran", "run", "needed", "invoked", "enabled"})
_CHECKS = frozenset(
    {"format", "parsed", "parse", "parsable", "parseable", "extracted", "syntax", "compiled", "compiles"}
)
"""Words of checks that an answer has to pass before a judge sees it; beside _PASSED the field says whether it did."""
_PASSED = frozenset((
    "ok", "valid", "passed", "pass", "correct", "success", "reward", "score", "check", "is", "has", "answer",
    "response", "output", "code", "json",
))  # fmt: skip
_TOLD = ("detail", "details", "reason", "message", "error", "note")
"""Fields beside such a one in which its words stand."""
_RAISED = frozenset({"error", "exception", "traceback"})
_WHOLE = frozenset((
    "error", "errors", "exception", "traceback", "message", "msg", "info", "details", "type", "class", "name", "text",
    "last", "final", "agent", "run", "rollout", "generation", "sampling", "llm", "model", "request", "trial",
    "episode", "sample",
))  # fmt: skip
"""Words of fields that tell of the whole attempt what was raised, and of no program or tool in it."""
_RAISED_BY = re.compile(
    r"\b(?:openai|anthropic|litellm|mistralai|cohere|botocore|google\.(?:genai|api_core))\.[\w.]*"
    r"(?:Error|Exception|Timeout|Unavailable|Exhausted|TooManyRequests)\b"
    r"|\b(?:RateLimit|APIConnection|APITimeout|ServiceUnavailable|EngineDead|AsyncEngineDead)Error\b"
    r"|\bError code: (?:408|429|5\d\d)\b|\boverloaded_error\b|\binsufficient_quota\b"
    r"|\bdocker\.errors\.\w+|\bray\.exceptions\.\w+|\bAgentRuntime\w*Error\b"
)
"""What only the servers and containers around a policy raise."""
_HTTP = frozenset({"http", "status", "code", "response", "api"})
_DENIED = frozenset({"no", "not", "without", "free", "non", "avoid", "avoided", "recovered", "retried"})
"""Words by which a name says that nothing broke, or nothing that stayed so."""
_COUNTS = frozenset({"num", "n", "count", "rate", "share", "prob", "mean", "max", "min", "total"})


def broken(words: frozenset[str], whole: bool = False) -> Fault | None:
    """Class of the fault that a field's words name; None where they name none, or may name the policy's own. `whole`:
    they say why the trial as a whole ended, where a program's own time limit in the sandbox is not what is meant."""
    if not words & (_BROKE | _FAILED) or words & (_COUNTS | _DENIED):
        return None
    judge = bool(words & JUDGE)
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
    if words & {"cancelled", "canceled", "interrupted", "keyboardinterrupt", "preempted", "evicted"}:
        return "cancelled"
    if words & {"ratelimit", "overloaded"} or ("api" in words and words & (_BROKE | {"exit"}) and not words & _POLICYS):
        return "model_api"
    if words & {"worker", "node", "actor"} and words & {"died", "dead", "lost", "crashed", "killed"}:
        return "other"
    if words <= {"no", "verdict", "reward", "score"} and "no" in words and len(words) > 1:
        return "judge"
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
    known = kind or mode or state or raised or words & JUDGE or _status_name(words)
    return FieldName(words, kind, mode, state, raised) if known else None


def _status_name(words: frozenset[str]) -> bool:
    return {"status", "code"} <= words <= _HTTP or {"http", "status"} <= words <= _HTTP


def named_fault(record: Mapping[str, Any], spoke: bool) -> tuple[Fault, str] | None:
    """(class, what says so) of the fault that a record's own fields name; None where none does.

    `spoke`: did the policy say or do anything? Ask only of rollouts that earned nothing.
    """
    raised, unasked = None, not_asked(record)
    for part in (record, *(v for k in NESTED if isinstance(v := record.get(k), dict))):
        judges: dict[str, frozenset[str]] = {}
        for key, value in part.items():
            name = about(key) if isinstance(key, str) else None
            if name is None:
                continue
            if name.words & JUDGE:
                judges[key] = name.words
            if value is None:
                continue
            if unasked and name.words & JUDGE and value == "":
                continue
            silence = silent(name.words, value, spoke) if name.words & JUDGE else None
            doubted = silence and doubtful(name.words, silence)
            if silence and not (doubted and stands(part, part is record, silence == "refused")):
                return "judge", f"{key}: the judge's reply is {silence}"
            if found := _named(name, key, value, spoke) or _stated(name, key, value, part):
                return found
            if not spoke and name.raised and raised is None:
                raised = _raised(key, value)
        if judges and (open_ := undecided(part, judges)):
            return "judge", f"{open_}: the judge's reply is unparsable"
        if judges and (ended := cut_off(part, judges)) and not stands(part, part is record):
            return "judge", f"{ended}: the judge's reply was cut off"
    return raised


def not_asked(record: Mapping[str, Any]) -> bool:
    """Does a record say that its judge was not asked, or that the answer failed a check that comes before it?"""
    for part in (record, *(v for k in (*NESTED, "components", "metrics") if isinstance(v := record.get(k), dict))):
        for key, value in part.items():
            words = words_of(key) if isinstance(key, str) else frozenset()
            if words & JUDGE and (says_so(value) if words & _SKIPPED else words & _CALLED and _zero(value)):
                return True
            if words & _CHECKS and words <= _CHECKS | _PASSED and _zero(value):
                return True
    return False


def _zero(value: Any) -> bool:
    return isinstance(value, bool | int | float) and not value


def _named(name: FieldName, key: str, value: Any, spoke: bool) -> tuple[Fault, str] | None:
    if not spoke and _status_name(name.words) and type(value) is int and (value == 429 or 500 <= value < 600):
        return "model_api", f"{key}: {value} (before the first turn)"
    if not says_so(value):
        return None
    if name.raised and name.words <= _WHOLE and (said := _RAISED_BY.search(text(value)[-4000:])):
        return kind_of(said[0], last_line(text(value))), f"{key}: {last_line(text(value))[:400]}"
    if {"finish", "reason"} <= name.words and value == "abort":  # the engine broke the request off
        return "cancelled", f"{key}: abort"
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


def with_named_fault(r: Rollout) -> Rollout:
    """The rollout as a fault where its own fields name one and it earned nothing; else as it is."""
    if r.error_kind or (r.reward or 0.0) > 0 or r.outcome == "correct":
        return r
    # numbers that a reward function returned are components; of those that speak of errors only a judge's are plain
    judged = {k: x for k, x in r.components.items() if (name := about(k)) and name.words & JUDGE and name.kind}
    record = {**judged, **r.detail} if judged else r.detail
    if r.components and "components" not in record:
        record = {**record, "components": dict(r.components)}
    if len(record) <= 2:
        return r
    found = named_fault(record, _spoke(r))
    return r if found is None else as_fault(r, *found)


def with_own_length(r: Rollout) -> Rollout:
    """The rollout as one that ended by its own length, where a fault's words say that its context ran over; what was
    paid for it stands. A prompt that was too long before the policy said anything is somebody else's doing."""
    if r.error_kind not in ("model_api", "other") or not ran_over(r.error or "") or not _spoke(r):
        return r
    detail = {k: v for k, v in r.detail.items() if k != "reward_of_fault"} | {"ended": (r.error or "")[:400]}
    paid = r.detail.get("reward_of_fault")
    return replace(r, reward=paid, finish="length", error=None, error_kind=None, detail=detail)


def as_fault(r: Rollout, kind: str, why: str) -> Rollout:
    """The rollout without reward, components and outcome; what it was paid is kept in its detail."""
    kept = {"reward_of_fault": r.reward} if r.reward is not None else {}
    return replace(
        r, reward=None, components={}, outcome="unknown", error=why, error_kind=kind, detail={**r.detail, **kept}
    )


def _spoke(r: Rollout) -> bool:
    turns: Iterable[Any] = r.turns
    return any(t.role == "assistant" and (t.tool_calls or turn_text(t).strip()) for t in turns)
