"""Faults of foreign rollouts: what becomes of a rollout that is one, and which replies of scoring models are none.

Whether a rollout is a fault is decided by its format's own fields, in its importer, or by the user (`evotrainer audit
--fault COLUMN`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from evotrainer.importers.common import is_context_overflow, kind_of, mapping, word, words_of
from evotrainer.importers.lenient_json import text
from evotrainer.records.rollout import Rollout, Turn, turn_text

Silence = Literal["empty", "filtered", "errored", "unparsable"]
"""What a scoring model's reply is where it gives no verdict."""
BROKE = frozenset((
    "error", "errors", "errored", "exception", "traceback", "crash", "crashed", "timeout", "unavailable", "unreachable",
    "infra", "infrastructure", "ratelimit", "overloaded", "gateway", "oom", "died", "aborted", "cancelled", "refused",
))  # fmt: skip
"""Words by which a field, its value or an answer speaks of an error, whoever made it."""
EVERY_REPLY = "every_reply"
"""In a rollout's detail: the last answer that its actions got, where all are errors of an API."""
SHOWN = 60
"""Characters of an answer by which it is known again."""
LOOKED_AT = 64
"""Choices of a reply that are looked at."""


def silence(reply: Mapping[str, Any]) -> Silence | None:
    """What is wrong with a scoring model's reply (a chat completion, a response, an output of Inspect's; NeMo Gym keeps
    it in `response`, its verdict in `verdict_label`); None where it says something, or is of no such shape."""
    if isinstance(inner := reply.get("response"), dict):
        return silence(inner) or ("unparsable" if reply.get("verdict_label", "") is None else None)
    listed = next((x for k in ("choices", "output") if isinstance(x := reply.get(k), list)), None)
    if listed is None:
        return None
    if reply.get("error") or reply.get("status") in ("failed", "cancelled"):
        return "errored"
    items = [x for x in listed[:LOOKED_AT] if isinstance(x, dict)]
    stops = [mapping(reply.get("incomplete_details")).get("reason")]
    stops += [x.get(k) for x in items for k in ("finish_reason", "stop_reason")]
    if "content_filter" in stops:
        return "filtered"
    return None if any(map(_has_content, items)) else "empty"


def _has_content(item: dict[str, Any]) -> bool:
    """Does one choice, or output item, hold words, or a call (some judges answer by calling a function)?"""
    message = mapping(item.get("message")) or item
    called = message.get("tool_calls") or message.get("function_call") or word(item.get("type")).endswith("_call")
    return bool(called or text(message.get("content")).strip())


def only_reply(turns: tuple[Turn, ...]) -> str:
    """The last answer that a rollout's actions got, numbers as #, where all are errors of an API (`kind_of`); else
    empty. Answers are the tools', else what the other side said after the policy."""
    first = next((i for i, t in enumerate(turns) if t.role == "assistant"), len(turns))
    answers = [t for t in turns if t.role == "tool"] or [t for t in turns[first:] if t.role == "user"]
    first_lines = [turn_text(t).strip()[:400].partition("\n")[0] for t in answers]
    if not first_lines or any(kind_of(x) != "model_api" or not words_of(x) & BROKE for x in first_lines):
        return ""
    return re.sub(r"\d+", "#", first_lines[-1])[:SHOWN].strip()


def with_only_reply(r: Rollout) -> Rollout:
    """The rollout with such an answer in its detail."""
    reply = "" if r.error_kind else only_reply(r.turns)
    return replace(r, detail={**r.detail, EVERY_REPLY: reply}) if reply else r


def with_own_length(r: Rollout) -> Rollout:
    """The rollout as one that ended by its own length, where a fault's words say that its context ran over; what was
    paid for it stands. A prompt that was too long before the policy said anything is somebody else's doing."""
    spoke = any(t.role == "assistant" and (t.tool_calls or turn_text(t).strip()) for t in r.turns)
    if r.error_kind not in ("model_api", "other") or not is_context_overflow(r.error or "") or not spoke:
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
