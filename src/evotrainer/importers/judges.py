"""Replies of models that score, as records keep them: which of them give no verdict, and why.

A reply is silent that is empty, filtered by the provider, an error in the reply's place, a refusal, cut off before its
verdict, or of a form in which no verdict was found. Read in the shapes of chat completions, of responses, of Inspect,
and in plain fields whose names speak of a judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from evotrainer.importers.foreign import mapping, says_so, word, words_of
from evotrainer.importers.tolerant import number, text

Silence = Literal["empty", "filtered", "errored", "unparsable", "refused"]
"""What a scoring model's reply is where it gives no verdict."""

JUDGE = frozenset({"judge", "judges", "grader", "grading", "verifier", "scorer", "rewardmodel", "monitor"})
REPLY = frozenset({"response", "reply", "output", "completion", "raw", "text", "message", "answer"})
REPLIES = frozenset({"responses", "replies", "outputs", "completions", "texts", "messages", "answers"})
_OWN_REPLY = frozenset({"response", "reply", "output", "completion", "raw"})
"""In a mapping of the judge's: what else is there (text, message, answer) may be what it was asked."""
_REASONS = frozenset({"reasoning", "rationale", "explanation", "feedback", "critique"})
_VERDICT = frozenset({"verdict", "score", "grade", "label", "rating", "judgement", "judgment", "decision"})
_STATE = frozenset({"status", "state", "result", "error"})
_PARSED = frozenset({"parse", "parsed", "parsable", "parseable", "parsing"})
_NO_VERDICT = frozenset((
    "no", "verdict", "score", "grade", "judge", "grader", "parse", "parsing", "error", "errored", "exception", "failed",
    "failure", "timeout", "unparsable", "unparseable", "missing", "not", "found", "response", "reply", "api",
))  # fmt: skip
_IN_PLACE = re.compile(
    r"\W{0,3}(?:\w{0,40}error|exception|failed|request failed|http)\b[^\n:]{0,16}(?:\b(?:429|5\d\d)\b|:[^\n]{0,200}?"
    r"(?:rate.?limit|overloaded|unavailable|connection|quota|internal server|\b(?:429|5\d\d)\b|"
    r"(?P<own>timed?.?out|pars(?:e|ing))))",
    re.IGNORECASE,
)
"""An error that was written where the reply belongs; looked for at its beginning. `own`: of a program that grades it
may tell of the program that is graded."""
_SERVER_SAYS = re.compile(
    r"[\W_]{0,4}(?:upstream connect error|internal server error|bad gateway|gateway time-?out|too many requests"
    r"|(?:http\W{0,3})?\b5\d\d\b[\W_]{0,3}(?:bad gateway|service|gateway|internal|server)|<html>?.{0,200}?\b5\d\d\b"
    r"|service (?:is )?(?:temporarily )?unavailable|rate.?limit(?:ed|s)?\b.{0,20}\b(?:reached|exceeded|hit)"
    r"|you exceeded your current quota|(?:the |that )?(?:model|server|engine|service)s? (?:is|are) "
    r"(?:currently |temporarily )?(?:overloaded|unavailable|down)|error communicating with \w+"
    r"|connection (?:error|refused|reset|aborted|timed out)\b|(?:api )?request timed out"
    r"|(?:error|failed|failure|unable)(?: to|:)? (?:get|obtain|fetch|generat|receiv)\w* (?:a |the |any )?(?:valid )?"
    r"(?:response|reply|verdict|completion|judge?ment)\b"
    r"|(?:openai|anthropic|litellm|httpx|httpcore|requests|aiohttp|google|botocore|urllib3|mistralai|cohere)\.[\w.]{0,60}"
    r"(?:error|exception|timeout)\b|error\W{1,3}request failed).{0,260}",
    re.IGNORECASE | re.DOTALL,
)
"""What servers and their clients say where a model's reply belongs: the whole of it, and it is short."""
_JUDGES = re.compile(
    r"\b(?:scores?d?|grades?d?|rat(?:ed|ing)|verdict|correct(?:ly)?|incorrect|wrong|answers?|solutions?|submission|code"
    r"|(?:un)?handle[sd]?|missing|covered|fail(?:s|ing)?|pass(?:es|ing)?|yes|no|step)\b"
    r"(?! (?:response|reply|verdict|available))"
    r"|\d\s*/\s*\d"
)
"""Words of a reply that judges something, also where it begins as an error does."""
_NOTHING = frozenset({"no response", "no reply", "[no response]", "<no response>"})
"""How programs write that there was no reply. `None` may be a verdict: "name the errors"."""
_BROKE_ALONE = re.compile(
    r"\W{0,4}(?:error|(?:api|http|server|service|internal|connection|request|read|connect)?_?(?:connection|timeout|status"
    r"|server|ratelimit|rate_limit|unavailable)_?(?:error|exception)?|timed out"
    r"|traceback \(most recent call last\):\s+file .{0,3500})\W{0,4}",
    re.IGNORECASE | re.DOTALL,
)
"""A reply that is nothing else; what a program grades may have ended so."""
_REFUSES = re.compile(
    r"(?:(?:i['’]?m|i am)(?: very| so)? sorry|sorry|i apologi[sz]e|unfortunately)?[\s,.;:]*(?:but )?"
    r"(?:as an ai[\w\s]{0,30}, )?i(?: can(?:no|['’])t| won['’]t| will not|(?:['’]m| am) (?:unable|not able) to)"
    r" (?:help|assist|comply|continue|fulfil|provide|engage|participate|process|discuss|do)\b(?! but\b)"
    r"[^.!\n]{0,80}[.!]?"
)
"""The whole of a reply in which a model declines to do what it was asked."""
_DECIDES = re.compile(
    r"\[\[|\\boxed|<\w*(?:score|verdict|grade|answer|rating|label)"
    r"|\b(?:verdict|scores?|grade|rating|judge?ment|decision|conclusion|label|result|points|correct|pass(?:ed)?)\b"
    r"[\W_]{1,12}(?:is\W{1,3})?(?:\d|[a-z]\b|yes|no|true|false|(?:in)?correct|wrong|right|pass|fail)"
    r"|^\W{0,12}(?:\d|[a-f]\b|yes|no|true|false|(?:in)?correct|wrong|right|pass|fail)|\b\d+\s*/\s*\d"
    r"|\b(?:(?:in)?correct|wrong|equivalent|equal)\b(?:[^.!?\n]{0,200}[.!])?\W{0,12}\Z",
    re.IGNORECASE,
)
"""A verdict in the words of a reply, before them, or in its last sentence."""
_GIVEN = re.compile(
    r"[\"'][\w ]{0,40}(?:score|verdict|grade|label|rating|judge?ment|decision|correct|pass|answer|result|equal"
    r"|equivalent|match|met|valid|points)"
    r"[\w ]{0,20}[\"']\s*:\s*[^\s{\[]"
)
"""A verdict in JSON."""
CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
"""Why a reply ended, where it was cut off."""
_ASKED = frozenset({"input", "inputs", "prompt", "prompts", "question", "query", "request", "instructions"})
"""Words of what a judge was asked."""
_MODELS = frozenset({"judge", "judges", "rewardmodel", "monitor"})
"""Names of scorers that are models; others may be programs, whose errors and time limits are those of the answer."""
_STANDS = frozenset({"verdict", "correct", "passed", "score", "reward", "grade", "judgement", "judgment"})
_NO_RESULT = frozenset((
    "format", "length", "max", "min", "weight", "threshold", "scale", "range", "answer", "expected", "reference",
    "prompt",
))  # fmt: skip
"""Words beside those by which a field is no verdict on the answer."""
_DECIDED = re.compile(
    r"\W{0,3}(?:[a-f][+-]?|yes|no|(?:in|partially |not )?correct|wrong|right|pass(?:ed)?|fail(?:ed)?)\W{0,3}"
)
"""A word that is a verdict and nothing else."""
_UNDECIDED = frozenset((
    "error", "errored", "parse", "judge", "unknown", "undefined", "none", "null", "nan", "na", "missing", "refused",
))  # fmt: skip
"""Words that stand where a verdict belongs."""
_OWN_REWARD = frozenset({"reward", "rewards", "total", "final", "mean", "sum"})
"""Names of what the rollout itself earned: it is what is in doubt."""
LOOKED_AT = 64
"""Replies of a list that are looked at."""


def stands(part: Mapping[str, Any], top: bool, refused: bool = False) -> bool:
    """Does a verdict stand in these fields, whoever's? Then a reply was read, however it is kept. `top`: they are the
    rollout's own, whose reward does not count. `refused`: beside a refusal, where 0 and false are what a program
    writes that found none."""
    for key, value in part.items():
        words = words_of(key) if isinstance(key, str) and _given(value, refused) else frozenset()
        known = words & _STANDS or (words & _VERDICT and words & JUDGE)
        if known and not words & _NO_RESULT and not (top and words <= _OWN_REWARD):
            return True
    return False


def _given(value: Any, refused: bool) -> bool:
    """Is a value a verdict?"""
    if not isinstance(value, bool | int | float | str):
        return False
    if (x := number(value)) is not None:
        return x > 0 or (x == 0 and not refused)
    said = value.strip().lower() if isinstance(value, str) else ""
    if refused:
        return _DECIDED.fullmatch(said) is not None
    return len(said) <= 40 and not words_of(said.replace("/", "")) <= _UNDECIDED


def doubtful(words: frozenset[str], found: Silence) -> bool:
    """Was this silence found in the words of a reply, which a verdict beside it outweighs?"""
    return found in ("refused", "unparsable") and not words & (_VERDICT | _STATE | _PARSED)


def silent(words: frozenset[str], value: Any, spoke: bool) -> Silence | None:
    """What is wrong with the value of a field whose name speaks of a judge; None where nothing is known to be.
    `words`: of the name; `spoke`: did the policy say anything (else the judge may rightly have seen nothing)?"""
    if isinstance(value, str):
        return _string(words, value)
    if isinstance(value, bool):
        broke = bool(words & {"failed", "failure", "error"})
        return "unparsable" if words & _PARSED and words & _MODELS and value is broke else None
    if isinstance(value, dict):
        return silence(value) or ((_message(words, value) or _fields(value)) if spoke else None)
    if not isinstance(value, list) or not value:
        return None
    some = value[:LOOKED_AT]
    if all(isinstance(x, str) for x in some):
        return "empty" if words & (REPLY | REPLIES) and not any(x.strip() for x in some) and spoke else None
    replies = [x for x in some if isinstance(x, dict)]
    if found := next((s for x in replies if (s := silence(x))), None):
        return found
    if replies and all("role" in x and "content" in x for x in replies):  # a chat: its last word is the judge's
        last = value[-1]
        return _message(words, last) if spoke and isinstance(last, dict) else None
    # of judges in a shape of their own one that answered may be enough
    said = [_fields(x) for x in replies] if spoke and len(replies) == len(some) else [None]
    return None if None in said else said[0]


def undecided(part: Mapping[str, Any], keys: Mapping[str, frozenset[str]]) -> str | None:
    """The field of a judge's verdict that is null beside a reply that says something; None where there is none such.
    `keys`: the fields of `part` whose names speak of a judge, with their words."""
    open_ = next((k for k, w in keys.items() if w & _VERDICT and not w & {"verifier"} and part[k] is None), None)
    said = [k for k, w in keys.items() if w & (REPLY | _REASONS) and not w & _VERDICT and _spoken(part[k])]
    return open_ if said else None


def cut_off(part: Mapping[str, Any], keys: Mapping[str, frozenset[str]]) -> str | None:
    """The field that says that the judge's reply was cut off, where no reply beside it holds a verdict."""
    ended = next((k for k, w in keys.items() if "reason" in w and str(part[k]).lower() in CUT), None)
    said = [part[k] for k, w in keys.items() if w & (_OWN_REPLY | _REASONS) and "reason" not in w]
    known = [part[k] for k, w in keys.items() if w & _VERDICT and part[k] is not None]
    replies = [x for x in said if _spoken(x)]
    return ended if replies and not known and not any(map(decides, replies)) else None


def decides(reply: str) -> bool:
    """Does a reply hold a verdict in any of the usual forms?"""
    return _DECIDES.search(reply) is not None


def _spoken(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _string(words: frozenset[str], value: str) -> Silence | None:
    low = value.strip().lower()
    if words & REPLY:
        if not low:
            return "empty"
        return _said(low, bool(words & _MODELS), bool(words & _OWN_REPLY))
    if "reason" in words and low in ("content_filter", "error"):
        return "filtered" if low == "content_filter" else "errored"
    if words & _MODELS and words & (_VERDICT | _STATE) and 0 < len(low) <= 40:
        said = set(re.findall(r"[a-z]+", low.replace("timed out", "timeout").replace("timed_out", "timeout")))
        # "failed" alone is a verdict
        unread = bool(said & _PARSED and said & {"failed", "failure"}) or {"no", "verdict"} <= said
        broke = unread or bool(said & {"error", "errored", "exception", "timeout", "unparsable", "unparseable"})
        if broke and said <= _NO_VERDICT:
            return "unparsable" if said & (_PARSED | {"unparsable", "unparseable", "verdict"}) else "errored"
    return None


def _said(reply: str, model: bool, own: bool = True) -> Silence | None:
    """What is wrong with the words of a reply; `model`: no program may have written them, `own`: the field holds the
    reply and no message about it."""
    if model and own and reply in _NOTHING:
        return "empty"
    found = _IN_PLACE.match(reply[:400])
    served = _SERVER_SAYS.fullmatch(reply) and not _JUDGES.search(reply)
    broke = (found and (not found["own"] or model)) or served
    raised = reply.startswith("traceback (most recent call last)") and not _JUDGES.search(reply)
    if broke or (model and (raised or _BROKE_ALONE.fullmatch(reply[:4000]))):
        return "errored"
    return _no_verdict(reply) if model and own else None


def _no_verdict(reply: str) -> Silence | None:
    """The same of the words of a model's reply that says something: it declines, or its JSON ends before a verdict."""
    if _REFUSES.fullmatch(reply) and not _JUDGES.search(reply):
        return "refused"
    body = re.sub(r"^```\w*\s*", "", reply).rstrip("` \n")
    torn = body.startswith("{") and not body.endswith("}") and body.count("{") > body.count("}")
    return "unparsable" if torn and not _GIVEN.search(body) else None


def _message(words: frozenset[str], value: Mapping[str, Any]) -> Silence | None:
    """The same of a message of a chat, or of a reply that has nothing but `content`; None of what others said, and
    where a verdict stands beside it."""
    inner = mapping(value.get("message")) or value
    if "content" not in inner or inner.get("role", "assistant") not in ("assistant", "model", "ai") or _calls(inner):
        return None
    beside = [x for y in (value, inner) for k, x in y.items() if words_of(k) & (_VERDICT | _PARSED)]
    if words & _ASKED or any(x is not None and x != "" for x in beside):
        return None
    said = text(inner["content"]).strip().lower()
    if said:
        return _said(said, bool(words & _MODELS))
    # reasoning alone may hold the verdict
    others = [x for k, x in inner.items() if words_of(k) & (_REASONS | _OWN_REPLY | {"message", "text"})]
    return None if any(map(_spoken, others)) else "empty"


def _fields(value: Mapping[str, Any]) -> Silence | None:
    """The same of a mapping that is the judge's as a whole, in no shape known: `{"response": "", "score": 0}`."""
    keys = {k: words_of(k) for k in value if isinstance(k, str)}
    raised = next((value[k] for k, w in keys.items() if w <= {"error", "exception", "judge"} and w), None)
    if isinstance(raised, str | dict) and says_so(raised):
        return "errored"
    replies = {k: value[k] for k, w in keys.items() if w & _OWN_REPLY and isinstance(value[k], str)}
    found = [s for x in replies.values() if (s := _string(REPLY | _MODELS, x))]
    if replies and len(found) == len(replies):
        return None if doubtful(REPLY, found[0]) and stands(value, False, found[0] == "refused") else found[0]
    return "unparsable" if undecided(value, keys) else None


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
    items = [x for x in listed[:LOOKED_AT] if isinstance(x, dict)]
    stops = [mapping(reply.get("incomplete_details")).get("reason")]
    stops += [x.get(k) for x in items for k in ("finish_reason", "stop_reason")]
    if "content_filter" in stops:
        return "filtered"
    said = [x for x in items if _says(x)]
    if not said:
        return "empty"
    texts = [text((mapping(x.get("message")) or x).get("content")).strip().lower() for x in said]
    return "errored" if all(_said(t, model=True) == "errored" for t in texts) else None


def _says(item: dict[str, Any]) -> bool:
    """Does one choice or output item hold words, or a call (some judges answer by calling a function)?"""
    message = mapping(item.get("message")) or item
    return _calls(message) or word(item.get("type")).endswith("_call") or bool(text(message.get("content")).strip())


def _calls(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls") or message.get("function_call"))
