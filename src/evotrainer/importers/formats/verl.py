"""verl's dumps of generations: `trainer.rollout_data_dir` and `validation_data_dir`, one `<step>.jsonl` a step.

Each line: input and output (texts as decoded, with the chat template), gts (ground truth; older dumps lack it), score,
step, and whatever the reward function returned with the score (`reward_extra_info`). `acc` there is verl's own
verdict.

verl 0.9's trainer adds `uid`, `<group>_<session>_<output>`, and of training rollouts nothing else the reward function
returned. Below a folder that `evotrainer verl render` wrote, that is read from the evidence which its reward plug-in
left, including the rollouts that were lost to faults of the infrastructure and never reached a dump.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import LogFormat, Skipped, Source, given_id, is_rendered, task_of
from evotrainer.importers.common import kind_of, verdict
from evotrainer.importers.jsonl import RecordReader
from evotrainer.importers.lenient_json import SPAN, number
from evotrainer.importers.lines import convert_all, records
from evotrainer.records.regular_file import read_text
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
        """One rollout a line, then those that only the plug-in's evidence knows."""
        reader, evidence = RecordReader(path), Evidence(path)
        yield from records(path, lambda r, n: _rollout(reader, evidence.rows, r, n))
        lost = ((0, record) for record in evidence.lost())
        yield from convert_all(path, lost, lambda r, _: _named(reader.rollout(r, "evidence"), r["uid"]))


class Evidence:
    """What the reward plug-in wrote of one step's rollouts; empty for dumps of anybody else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        # the folder of `evotrainer verl render` that the dump lies in
        root = next((f for f in path.resolve().parents[:3] if is_rendered(f)), None)
        if root is None or not path.stem.isdecimal():
            return
        split = "search" if "validation" in path.resolve().relative_to(root).parts else "train"
        for file in sorted((root / "evidence").glob(f"{split}-{int(path.stem)}-*.jsonl")):
            for line in read_text(file, errors="replace").splitlines():
                try:
                    row = json.loads(line)
                    # without the last number: one session may have several outputs, and the plug-in scores the session
                    self.rows[row["uid"].rpartition("_")[0]] = row
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # a line torn by a crash; what it told is in the dump too, save the components

    def lost(self) -> Iterator[dict[str, Any]]:
        """Records, in the plain form, of rollouts that a fault of the infrastructure kept from the dump; once, where a
        file is read in stretches."""
        span = SPAN.get()
        # a large file is read in stretches, each by this importer: only the first tells of the lost ones
        for row in self.rows.values() if span is None or not span[0] else ():
            if row.get("error_kind") and (uid := _UID.fullmatch(str(row.get("uid")))):
                place = {"group": f"{self.path.name}@{row['step']}#{uid[1]}", "k": int(uid[2]), "finish": "error"}
                fault = {"fault": str(row["error_kind"]), **row.get("detail", {})}
                kind = kind_of(str(row["error_kind"]), str(row.get("error")))
                yield {**row, **place, "error_kind": kind, "detail": fault}


def _named(out: Rollout | str, uid: str) -> Rollout | str:
    """The rollout under verl's own name of it, which is the same in whatever file it lies."""
    return replace(out, id=given_id("verl", uid)) if isinstance(out, Rollout) else out


def _rollout(reader: RecordReader, evidence: dict[str, Any], r: dict[str, Any], n: int | str) -> Rollout | str:
    for side in ("input", "output"):
        if not isinstance(r.get(side), str | list):
            return f"it has no {side}"
    uid = _UID.fullmatch(r["uid"]) if isinstance(r.get("uid"), str) else None
    known = evidence.get(uid[0].rpartition("_")[0], {}) if uid else {}
    # verl's own uid names an attempt; in dumps of others `uid` may be the prompt's
    names = ("task_id", "index") if uid else ("task_id", "uid", "index")
    task = str(known.get("task") or next((r[k] for k in names if isinstance(r.get(k), str | int)), ""))
    task = task or task_of("\n".join(t.text for t in chat.messages(r["input"])))
    step, stem = r.get("step"), reader.path.stem
    # dumps that were merged or edited may lack the step; verl names its files by it
    if not chat.is_int(step):
        step = int(stem) if stem.isdecimal() and len(stem) < 10 else 0
    extras = {k: v for k, v in r.items() if k not in (*_KEYS, "step", "gts")}
    # the plug-in's components take the place of the dump's: there a missing one is told from a zero
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
        "components": known.get("components", paid),
        "outcome": known.get("outcome") or verdict(judged),
        "step": step,
        "group": f"{reader.path.name}@{step}#{uid[1] if uid else task}",
        "error": next((r[k] for k in _FAULTS if isinstance(r.get(k), str) and r[k]), None),
        "detail": {k: v for k, v in r.items() if k not in (*_KEYS, "step", *paid)} | known.get("detail", {}),
    }
    record |= {k: known[k] for k in ("finish", "split", "tokens") if k in known} | ({"k": int(uid[2])} if uid else {})
    out = reader.rollout(record, n)
    return _named(out, uid[0]) if uid else out


IMPORTER = Verl()
