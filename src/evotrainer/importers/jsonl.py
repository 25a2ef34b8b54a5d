"""Plain JSONL: the form to convert to where no importer exists. One object a line, or one JSON array of objects.

    {"task": "7", "text": "... the completion ...", "reward": 0.5}

Its fields are in docs/importers.md ("Plain JSONL"): a task, a text, and a verdict or the reason why there is none, and
each field of `Rollout` by its own name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from evotrainer.importers import chat
from evotrainer.importers.base import Fault, LogFormat, Skipped, Source, imported_id, task_of
from evotrainer.importers.common import kind_of, words_of
from evotrainer.importers.lenient_json import conversation, number
from evotrainer.importers.lines import Counters, records, split_columns
from evotrainer.importers.messages import call_of, extra_calls
from evotrainer.records.rollout import Outcome, Rollout, Turn

TASKS = ("task", "task_id")
TEXTS = ("text", "completion", "turns", "messages", "response")
VERDICTS = ("reward", "outcome", "correct", "error_kind", "error")
_MINIMAL = frozenset({"task", "text", "reward"})
_STRINGS = ("run", "branch", "policy", "split", "sandbox_tier", "env_hash")
INTS = ("step", "seed", "attempt", "tokens")
_FLOATS = ("advantage", "mean_logprob", "entropy")
FIELDS = frozenset((
    *TASKS, *TEXTS, *VERDICTS, *_STRINGS, *INTS, *_FLOATS, "prompt", "group", "k", "components", "finish", "token_ids",
    "logprobs", "knobs", "detail", "tool_calls", "mask_sample",
))  # fmt: skip
_FAULTS: dict[str, Fault] = {re.sub("[^a-z0-9]", "", k): k for k in get_args(Fault)}
"""Class of a fault by its name, letters and digits only, in lower case."""
_OUTCOMES = frozenset(get_args(Outcome))
SCALARS = (*TASKS, *VERDICTS, "advantage", "step", "finish")
"""Fields whose value is no list: a list in their place holds a value for each of several rows."""
_IDENTITY = ("run", "branch", "policy", "seed", "step", "attempt", "k")
_NOTHING: tuple[Any, ...] = (None, "", [], {}, False)


class Jsonl(LogFormat):
    """The importer of the plain form."""

    name = "jsonl"
    about = "plain JSON lines or a JSON array, converted by hand: task, text, reward, and any field of a rollout"
    asked = 1100
    names = "id"
    by_lines = True

    def recognises(self, source: Source) -> bool:
        """An object, or an array of such, with task, text and verdict."""
        first = source.first
        return any(is_plain(x) for x in first[:20]) if isinstance(first, list) else is_plain(first)

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """See the module."""
        return records(
            path, RecordReader(path).rollout, constants=True, rows=lambda r: split_columns(r, TEXTS, SCALARS)
        )


def is_plain(value: Any) -> bool:
    """Whether a JSON value is a record of the plain form."""
    return (
        isinstance(value, dict)
        and any(k in value for k in (*TASKS, "prompt"))
        and any(k in value for k in TEXTS)
        and any(k in value for k in VERDICTS)
    )


class RecordReader:
    """Records of one file."""

    def __init__(self, path: Path, has_text: bool = True, place: str = "") -> None:
        self.path = path
        self.place = place or path.name
        """What a group is of, where the records name none."""
        self.has_text = has_text
        self.source = str(path)
        self.count = Counters()
        self.ids: dict[str, bytes] = {}
        """What was read under each id that was taken as it is."""

    def own_id(self, r: dict[str, Any], task: str, turns: tuple[Turn, ...]) -> str | None:
        """Id of a record that gives one, as it is or (docs/importers.md, "Own ids") hashed with the content: task,
        texts, reward, run, branch, policy, seed, step, attempt, k. None where it gives none."""
        own = r.get("id")
        if not (isinstance(own, str) and own) and not chat.is_int(own):
            return None
        identity = (
            task,
            r.get("reward"),
            *(r.get(k) for k in _IDENTITY),
            *((t.role, t.text, t.tool_calls) for t in turns),
        )
        # repr: the tool calls among it are objects
        content = hashlib.blake2b(repr((own, identity)).encode("utf-8", "surrogatepass"), digest_size=16)
        if not isinstance(own, str) or own == task or own.isdecimal() or not any(k in r for k in TASKS):
            return content.hexdigest()
        # what cannot be printed cannot be stored as it is
        if own.isprintable() and self.ids.setdefault(own, content.digest()) == content.digest():
            return own
        return content.hexdigest()

    def rollout(self, r: dict[str, Any], n: int | str, turns: tuple[Turn, ...] | None = None) -> Rollout | str:
        """`turns`: those of the record, where its format has read them already."""
        turns = _turns(r) if turns is None else turns
        task = _task(r, turns)
        if not task:
            return f"it names no task; the names known for it are {', '.join(TASKS)}, or a prompt"
        if not turns and self.has_text and not (r.get("error_kind") or r.get("error") or r.get("mask_sample") is True):
            return f"it has no text; the names known for it are {', '.join(TEXTS)}"
        other: dict[str, Any] = {"source": self.source, "record": n}
        fields: dict[str, Any] = {}
        # the quick way for records of the smallest form, which may come in millions
        if not r.keys() <= _MINIMAL:
            unread = _optional(r, fields)
            if "policy" not in fields and isinstance(r.get("model"), str):
                fields["policy"] = r["model"]
            if isinstance(r.get("detail"), dict):
                other = {**r["detail"], **other}
            for key in r.keys() - FIELDS:
                other.setdefault(key, r[key])
            if r.get("response") is not None and any(r.get(k) is not None for k in TEXTS[:-1]):
                other.setdefault("response", r["response"])  # the text stands elsewhere
            if unread:
                other["unread"] = sorted(unread)
        given = r.get("reward")
        reward = number(given) if given is not None else None
        if given is not None and reward is None:
            other["unread"] = sorted([*other.get("unread", ()), "reward"])
        outcome, wrong = _outcome(r, given)
        if wrong:
            other["unread"] = sorted({*other.get("unread", ()), *wrong})
        # a fault is never a wrong answer: its reward is kept in the detail, not paid
        if "error_kind" in fields:
            if reward is not None:
                other["reward_of_fault"] = reward
            reward, outcome = None, "unknown"
        group = r.get("group")
        if type(group) is int:
            group = str(group)
        if not isinstance(group, str) or not group:
            who = fields.get("policy", "")
            if not fields.keys().isdisjoint(("run", "branch", "seed")):
                who = "/".join(str(fields.get(key, "")) for key in ("run", "branch", "policy", "seed"))
            group = f"{self.place}#{who}@{fields.get('step', 0)}#{task}"
        k = r.get("k")
        return Rollout(
            self.own_id(r, task, turns) or imported_id(self.path, n),
            task,
            turns,
            reward,
            outcome=outcome,
            group=group,
            k=k if chat.is_int(k) else self.count.next(group),  # type: ignore[arg-type]
            detail=other,
            **fields,
        )


def _task(r: dict[str, Any], turns: tuple[Turn, ...]) -> str:
    for key in TASKS:
        value = r.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    words = "\n".join(t.text for t in turns if t.role in ("system", "user"))
    return task_of(words) if words and not any(k in r for k in TASKS) else ""


def _turns(r: dict[str, Any]) -> tuple[Turn, ...]:
    """Turns of a record; ValueError where its text is of no known shape."""
    for key in ("text", "completion", "response"):
        if key == "response" and any(r.get(k) is not None for k in TEXTS[:-1]):
            break
        value = r.get(key)
        # the quick way again: one or two turns without the machinery of conversations
        if isinstance(value, str) and "tool_calls" not in r and "<tool_call>" not in value and value[:1] != "[":
            prompt = r.get("prompt")
            if prompt is None:
                return (Turn("assistant", value),)
            if isinstance(prompt, str) and prompt[:1] != "[":
                return (Turn("user", prompt), Turn("assistant", value))
    talk = chat.Conversation()
    chat.add(talk, conversation(r.get("prompt")))
    for key in TEXTS:
        if r.get(key) is not None:
            chat.add(talk, conversation(r[key]), "assistant")
            break
    if "tool_calls" in r:
        for raw in extra_calls(r):
            talk.call(*call_of(raw))
    return talk.turns()


def _outcome(r: dict[str, Any], reward: Any) -> tuple[Outcome, set[str]]:
    """The verdict, and the names of the fields that hold one of no known form."""
    unread: set[str] = set()
    for key in ("outcome", "correct"):
        value = r.get(key)
        if key == "outcome" and isinstance(value, str) and value.lower() in _OUTCOMES:
            return value.lower(), unread  # type: ignore[return-value]
        # 1 and 0 are verdicts under these names only: as a reward a 1 may be one of many points
        if isinstance(value, bool | int | float) and value in (0, 1):
            return "correct" if value else "incorrect", unread
        if value is not None:
            unread.add(key)
    if isinstance(reward, bool):
        return "correct" if reward else "incorrect", unread
    return "unknown", unread


def _optional(r: dict[str, Any], fields: dict[str, Any]) -> set[str]:
    """Fill in the fields of a rollout that a record gives; returns the names of those of a wrong type."""
    bad: set[str] = set()
    for key, read in _READ.items():
        if (value := r.get(key)) is not None:
            if (kept := read(value)) is None:
                bad.add(key)
            else:
                fields[key] = kept
    if isinstance(value := r.get("components"), dict):
        bad |= {f"components.{k}" for k, v in value.items() if v is not None and fields["components"][str(k)] is None}
    if (value := r.get("mask_sample")) is not None and not isinstance(value, bool):
        bad.add("mask_sample")
    kind, error = r.get("error_kind"), r.get("error")
    if kind not in _NOTHING or error not in _NOTHING:
        named = _fault(kind) if kind not in _NOTHING else "other"
        fields["error_kind"] = named or "other"
        # an unknown word is not lost: it stands in the error's text
        message = error if isinstance(error, str) and error else str(error or kind)
        fields["error"] = message if named or str(kind) in message else f"{kind}: {message}"
    elif r.get("mask_sample") is True:
        fields["error_kind"], fields["error"] = "masked", "mask_sample"
    for key, kinds in (("group", (str, int)), ("k", (int,)), ("detail", (dict,))):
        if r.get(key) is not None and not isinstance(r[key], kinds):
            bad.add(key)
    return bad


def _fault(kind: Any) -> Fault | None:
    """Class of a fault by its name in any letter case, or by the words of errors (`kind_of`); None where neither
    tells."""
    if not isinstance(kind, str):
        return None
    named = kind_of(" ".join(sorted(words_of(kind)))) if len(kind) < 100 else "other"
    return _FAULTS.get(re.sub("[^a-z0-9]", "", kind.lower())) or (named if named != "other" else None)


def numbers(value: Any) -> dict[str, float | None] | None:
    """Named numbers, None where one is none; None for anything but a mapping."""
    if not isinstance(value, dict):
        return None
    return {str(k): number(v) if isinstance(v, int | float | None) else None for k, v in value.items()}


def _listed(value: Any, good: Callable[[Any], bool], of: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    return tuple(map(of, value)) if isinstance(value, list) and all(map(good, value)) else None


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_STRINGS, lambda v: v if isinstance(v, str) else None),
    **dict.fromkeys(INTS, lambda v: v if chat.is_int(v) else None),
    **dict.fromkeys(_FLOATS, number),
    "tokens": lambda v: v if chat.is_int(v) and v >= 0 else None,
    "finish": chat.finish,
    "components": numbers,
    "knobs": lambda v: v if isinstance(v, dict) else None,
    # 32 bits: what the store's column holds
    "token_ids": lambda v: _listed(v, lambda x: type(x) is int and -(2**31) <= x < 2**31, int),
    "logprobs": lambda v: _listed(v, lambda x: isinstance(x, int | float), float),
}
"""Optional field -> its value as a rollout has it; None where it is of a wrong type."""

IMPORTER = Jsonl()
