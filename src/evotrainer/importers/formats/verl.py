"""verl's dumps of generations: `trainer.rollout_data_dir` and `validation_data_dir`, one `<step>.jsonl` a step.

Each line: input and output (texts as decoded, with the chat template), gts (ground truth; older dumps lack it), score,
step, and whatever the reward function returned with the score (`reward_extra_info`). `acc` there is verl's own
verdict.

verl 0.9's trainer adds `uid`, `<group>_<session>_<output>`, and of training rollouts nothing else the reward function
returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import LogFormat, Skipped, Source, given_id, task_of
from evotrainer.importers.common import verdict
from evotrainer.importers.jsonl import RecordReader
from evotrainer.importers.lenient_json import number
from evotrainer.importers.lines import records
from evotrainer.records.rollout import Rollout

_KEYS = ("input", "output", "score")
_VERDICTS = ("acc", "correct", "is_correct")
_FAULTS = ("error", "error_kind")
_UID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})_(\d{1,9})_(\d{1,9})")


class Verl(LogFormat):
    """The importer of verl's dumps."""

    name = "verl"
    about = "verl rollout and validation dumps (<step>.jsonl): input, output, gts, score, step, reward_extra_info"
    asked = 50
    names = "group"
    by_lines = True

    def one_reading(self, path: Path) -> Path | None:
        return path.parent

    def recognises(self, source: Source) -> bool:
        """An object with input, output, score, and step or gts."""
        r = source.first
        return isinstance(r, dict) and all(k in r for k in _KEYS) and ("step" in r or "gts" in r)

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """One rollout a line."""
        reader = RecordReader(path)
        yield from records(path, lambda r, n: _rollout(reader, r, n))


def _rollout(reader: RecordReader, r: dict[str, Any], n: int | str) -> Rollout | str:
    for side in ("input", "output"):
        if not isinstance(r.get(side), str | list):
            return f"it has no {side}"
    uid = _UID.fullmatch(r["uid"]) if isinstance(r.get("uid"), str) else None
    # verl's own uid names an attempt; in dumps of others `uid` may be the prompt's
    names = ("task_id", "index") if uid else ("task_id", "uid", "index")
    task = str(next((r[k] for k in names if isinstance(r.get(k), str | int)), ""))
    task = task or task_of("\n".join(t.text for t in chat.messages(r["input"])))
    step, stem = r.get("step"), reader.path.stem
    # dumps that were merged or edited may lack the step; verl names its files by it
    if not chat.is_int(step):
        step = int(stem) if stem.isdecimal() and len(stem) < 10 else 0
    extras = {k: v for k, v in r.items() if k not in (*_KEYS, "step", "gts")}
    paid = {k: v for k, v in extras.items() if isinstance(v, int | float) and k not in ("task_id", "index")}
    score = r.get("score")
    verdicts = (*(extras.get(k) for k in _VERDICTS), score if isinstance(score, bool) else None)
    judged = next((v for v in verdicts if isinstance(v, bool | int | float) and v in (0, 1)), None)
    record = {
        "prompt": r["input"],
        "completion": r["output"],
        "task": task,
        # a score that is no number is no reward of 0: it stays unknown
        "reward": number(score) if isinstance(score, int | float) else None,
        "components": paid,
        "outcome": verdict(judged),
        "step": step,
        "group": f"{reader.path.name}@{step}#{uid[1] if uid else task}",
        "error": next((r[k] for k in _FAULTS if isinstance(r.get(k), str) and r[k]), None),
        "detail": {k: v for k, v in r.items() if k not in (*_KEYS, "step", *paid)},
    }
    out = reader.rollout(record | ({"k": int(uid[2])} if uid else {}), n)
    # under verl's own name, the same in whatever file it lies
    return replace(out, id=given_id("verl", uid[0])) if uid and isinstance(out, Rollout) else out


IMPORTER = Verl()
