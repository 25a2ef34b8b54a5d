"""What authored and mined detectors may look at: texts and numbers of single rollouts, whatever the environment.

Nothing here knows a domain, a command or a reward component by name. The outcome and the composed reward are no
features: a detector that repeats the score explains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness.code_reading.actions import actions_of, command
from evotrainer.harness.code_reading.recorded import tests_in
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats
from evotrainer.harness.text import MAX_TEXT
from evotrainer.records.rollout import Rollout, Turn, completion_of, prompt_of, turn_text
from evotrainer.records.text import shown

LENGTHS = (
    "words", "tokens", "turns", "repetition", "line_run", "actions", "edits", "searches", "tests", "first_edit",
    "action_run",
)  # fmt: skip
"""Traits (harness/columns/traits.py) that may be compared with a threshold."""
OVERLAPS = ("copied:prompt", "copied:observations", "copied:tests")
"""Share of the answer's word characters that stand in the prompt, or in what the episode had shown before, as whole
words of three characters or more; share of visible expected outputs (two characters or more) that stand in the
answer."""
RESTATES = 0.99
"""Share of rollouts on which what repeats the outcome agrees with it."""
MAX_LINE = 400
"""Characters of one action or observed line that patterns read."""

_WORD = re.compile(r"\w+")


class FeatureView:
    """The live rollouts of a batch as the texts and numbers that detectors compare; texts are read when they are first
    asked for."""

    def __init__(self, batch: Batch | Iterable[Rollout]) -> None:
        """A batch, or rollouts in any order: each is a group of its own then."""
        self.batch = batch if isinstance(batch, Batch) else Batch([r] for r in batch)

    @classmethod
    def joined(cls, views: Iterable[FeatureView]) -> FeatureView:
        """The rollouts of all, in order."""
        return cls(Batch.joined([v.batch for v in views]))

    def pick(self, indices: Sequence[int] | np.ndarray) -> FeatureView:
        """Some of the rollouts, in the given order."""
        return FeatureView(self.batch.pick(indices))

    def __len__(self) -> int:
        return self.batch.n

    @cached_property
    def rollouts(self) -> list[Rollout]:
        """Whole ones: what a Python function is shown."""
        return self.batch.rollouts_at(range(len(self)))

    @cached_property
    def turns(self) -> list[tuple[Any, ...]]:
        return self.batch.turns(range(len(self)))

    @cached_property
    def tasks(self) -> list[str]:
        return self.batch.column("task")

    @property
    def half_of_tasks(self) -> np.ndarray:
        """Rollouts of one half of the tasks, chosen by a hash of their names, bool (N,)."""
        # by name and not by place: a task is on the same side in every version, so halves can be compared between
        # versions
        return np.array([crc32(t.encode("utf-8", "replace")) & 1 for t in self.tasks], dtype=bool)

    @cached_property
    def answers(self) -> list[str]:
        """All assistant text."""
        return [completion_of(turns)[:MAX_TEXT] for turns in self.turns]

    @cached_property
    def commands(self) -> list[list[str]]:
        """Actions in order, one line each; empty where the rollout is a single answer."""
        return [[" ".join(command(a).split())[:MAX_LINE] for a in actions_of(turns)] for turns in self.turns]

    @cached_property
    def observations(self) -> list[str]:
        """What the environment said after the first answer."""
        return ["\n".join(seen_after(turns))[:MAX_TEXT] for turns in self.turns]

    @property
    def solved(self) -> np.ndarray:
        """Outcomes that are correct, bool (N,)."""
        return self.batch.truth == 1

    def texts(self, where: str) -> list[str]:
        """One text per rollout; actions are lines."""
        if where == "actions":
            return ["\n".join(c) for c in self.commands]
        return self.observations if where == "observations" else self.answers

    def number(self, feature: str) -> Floats:
        """Values of a feature (N,), NaN where it does not apply; ConfigError for an unknown one."""
        if feature in LENGTHS:
            return self.batch.trait(feature)
        if feature == "copied:tests":
            rows = zip(self.turns, self.batch.column("detail"), strict=True)
            return np.array([_copied_tests(turns, detail) for turns, detail in rows], dtype=np.float64)
        if feature in OVERLAPS:
            return np.array([_OVERLAP[feature](turns) for turns in self.turns], dtype=np.float64)
        if feature.startswith("component:"):
            first, second = components_of(feature, self.batch.component_names)
            x = self.batch.component(first)
            return x - self.batch.component(second) if second else x
        raise ConfigError(
            f"unknown feature {feature!r}; one of: {', '.join((*LENGTHS, *OVERLAPS))}, component:<name>, "
            "component:<name> - <name>"
        )


def components_of(feature: str, known: Collection[str]) -> tuple[str, str]:
    """The component of `component:<name>`, or the two of `component:<name> - <name>`;
    the second is empty where there is one.

    A name may hold ` - ` itself: what is known decides, and where nothing is, the first.
    """
    text = feature.removeprefix("component:")
    parts = text.split(" - ")
    pairs = [(" - ".join(parts[:i]), " - ".join(parts[i:])) for i in range(1, len(parts))]
    if text in known or not pairs:
        return text, ""
    return next((p for p in pairs if p[0] in known and p[1] in known), pairs[0])


def restates(views: Sequence[FeatureView], component: str, share: float = RESTATES) -> bool:
    """Is a reward component the outcome under another name, on this share of rollouts or more? It explains no score."""
    x = np.concatenate([v.batch.component(component) for v in views])
    known = np.isfinite(x)
    same = (x >= 0.5) == np.concatenate([v.solved for v in views])
    return bool(known.any()) and float(same[known].mean()) >= share


def seen_after(turns: Sequence[Turn]) -> list[str]:
    """Texts of the turns after the first assistant turn that are not the assistant's."""
    first = next((i for i, t in enumerate(turns) if t.role == "assistant"), len(turns))
    return [turn_text(t) for t in turns[first:] if t.role != "assistant"]


def _long(text: str) -> list[str]:
    return [w for w in _WORD.findall(text[:MAX_TEXT]) if len(w) > 2]


def _copied_prompt(turns: Sequence[Turn]) -> float:
    own, known = _long(completion_of(turns)), set(_long(prompt_of(turns)))
    total = sum(map(len, own))
    copied = sum(len(w) for w in own if w in known)
    return copied / total if total else float("nan")


def _copied_observations(turns: Sequence[Turn]) -> float:
    """Words of the assistant that the environment had said since the first answer and the prompt does not hold."""
    shown: set[str] = set()
    asked = set(_long(prompt_of(turns)))
    own = total = 0
    acting = False
    for t in turns:
        if t.role == "assistant":
            text = " ".join([turn_text(t), *(str(c.arguments) for c in t.tool_calls)])
            found = [w for w in _long(text) if w not in asked]
            # in characters, so that a long identifier that was copied weighs more than a short word
            total += sum(map(len, found))
            own += sum(len(w) for w in found if w in shown)
        else:
            acting = acting or total > 0
            # before the first answer it is the prompt that speaks, which `asked` holds already
            shown.update(_long(turn_text(t)) if total else ())
    return own / total if total and acting else float("nan")


def _copied_tests(turns: Sequence[Turn], detail: Any) -> float:
    tests = tests_in(detail) if isinstance(detail, Mapping) else ()
    wanted = [t.expected.strip() for t in tests if not t.hidden and len(t.expected.strip()) > 1]
    if not wanted:
        return float("nan")
    text = completion_of(turns)[:MAX_TEXT]
    # as a word of its own: an expected "1" stands in every program that counts to 10
    return sum(re.search(rf"(?<!\w){re.escape(w)}(?!\w)", text) is not None for w in wanted) / len(wanted)


_OVERLAP = {"copied:prompt": _copied_prompt, "copied:observations": _copied_observations}


def payload(r: Rollout) -> dict[str, object]:
    """A rollout as a `python` detector sees it: JSON, texts cut at MAX_TEXT characters.

    Without what tells a good version from a bad one by name: outcome, composed reward, identity, seed, step.
    """
    return {
        "task": r.task,
        "finish": r.finish,
        "tokens": r.tokens,
        "components": dict(r.components),
        "turns": [
            {
                "role": t.role,
                "text": t.text[:MAX_TEXT],
                "calls": [{"name": c.name, "arguments": c.arguments[:MAX_TEXT], "ok": c.ok} for c in t.tool_calls],
            }
            for t in r.turns
        ],
        "tests": [_plain(t) for t in (r.detail.get("tests") or ())[:64]] if isinstance(r.detail, Mapping) else [],
    }


def _plain(test: object) -> dict[str, object]:
    if not isinstance(test, Mapping):
        return {}
    return {str(k): _short(v) for k, v in test.items()}


def _short(value: object) -> object:
    """Numbers as they are, all else as text of at most 400 characters."""
    if isinstance(value, bool | int | float | type(None)):
        return value
    text = value if isinstance(value, str) else shown(value, 400)
    return text[:400]
