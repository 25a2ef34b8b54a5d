"""Verdicts that lie beside trajectories: SWE-bench's reports and summaries, and predictions, joined by instance.

Agents write what they did; whether it solved the task stands in another file, written by the evaluation: a report for
each instance (`report.json`), one for the run (`resolved_ids`, `resolved`), or a file of predictions with the patches.
They are looked for in the trajectory's folder, the folders above it, and where evaluations put them below those. A
reward is never made of them: they are the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from evotrainer.importers.foreign import listing, mapping, word
from evotrainer.importers.terminal_bench import is_terminal_run
from evotrainer.importers.tolerant import parse, whole
from evotrainer.records.rollout import Outcome, Rollout

JOINED = frozenset({"swe_agent", "mini_swe_agent"})
"""Formats whose records may have their verdict elsewhere."""
ABOVE = 4
"""Folders above a trajectory that are looked at, its own one among them."""
MAX_BYTES = 1 << 26
_NAME = re.compile(
    r"(?:^|[._-])(?:reports?|results?(?:_summary)?|resolved|eval(?:uation)?(?:_results?)?|preds?|predictions?)"
    r"[\w.-]*\.jsonl?$",
    re.IGNORECASE,
)
_FOLDERS = ("", "results", "evaluation", "evaluation_results", "eval", "logs", "reports")
_RESOLVED = ("resolved_ids", "resolved_instances", "resolved")
_OTHERS = (
    "submitted_ids", "completed_ids", "unresolved_ids", "error_ids", "empty_patch_ids", "incomplete_ids",
    "generated", "applied", "with_logs", "no_logs", "no_generation", "unresolved", "no_apply", "test_timeout",
    "test_errored", "install_fail",
)  # fmt: skip
"""Lists of instances of a run's report, resolved or not."""

Verdicts = Mapping[str, dict[str, Any]]
"""Instance -> `resolved` (bool), `patch`, `tests` as far as they are there."""


def is_results(path: Path) -> bool:
    """Is it such a file of verdicts, and no rollouts?"""
    return path.is_file() and _NAME.search(path.name) is not None and bool(_read(path))


def with_verdict(r: Rollout, path: Path) -> Rollout:
    """The rollout with the outcome and patch that lie beside its file, where it has none of its own."""
    if r.error_kind or (r.outcome != "unknown" and r.detail.get("patch")):
        return r
    detail = dict(r.detail)
    outcome: Outcome = r.outcome
    for found in _beside(path, r.task):
        resolved = found.get("resolved")
        if outcome == "unknown" and isinstance(resolved, bool):
            outcome = "correct" if resolved else "incorrect"
            detail["verdict_of"] = found["source"]
            if found.get("tests"):
                detail.setdefault("tests_status", found["tests"])
        if found.get("patch"):
            detail.setdefault("patch", found["patch"])
        if outcome != "unknown" and "patch" in detail:
            break
    return replace(r, outcome=outcome, detail=detail) if detail != r.detail else r


def _beside(path: Path, task: str) -> Iterator[dict[str, Any]]:
    """What the files near a trajectory say of its task, the nearest first."""
    if not task or "/" in task or "\\" in task or task in (".", ".."):
        return
    folder = path.resolve().parent
    for _ in range(ABOVE):
        for place in _FOLDERS:
            near = folder / place if place else folder
            for name in (near / task / "report.json", *_named(near)):
                if (found := _read(name).get(task)) is not None:
                    yield {**found, "source": name.name if name.parent == near else f"{name.parent.name}/{name.name}"}
        for name in _deep(folder, task):
            if (found := _read(name).get(task)) is not None:
                yield {**found, "source": f"{task}/report.json"}
        if folder.parent == folder:
            return
        folder = folder.parent


@lru_cache(maxsize=1024)
def _named(folder: Path) -> tuple[Path, ...]:
    """Files of a folder that are named like verdicts."""
    try:
        return tuple(sorted(p for p in folder.iterdir() if _NAME.search(p.name) and p.is_file()))
    except OSError:
        return ()


@lru_cache(maxsize=256)
def _runs(folder: Path) -> tuple[Path, ...]:
    """Folders in which SWE-bench's evaluation puts one folder an instance."""
    base = folder / "logs" / "run_evaluation"
    try:
        return tuple(sorted(p for p in base.glob("*/*") if p.is_dir())) if base.is_dir() else ()
    except OSError:
        return ()


def _deep(folder: Path, task: str) -> Iterator[Path]:
    yield from (run / task / "report.json" for run in _runs(folder))


def _read(path: Path) -> Verdicts:
    try:
        stat = path.stat()
    except OSError:
        return {}
    return _verdicts(path, stat.st_size, stat.st_mtime_ns) if 0 < stat.st_size <= MAX_BYTES else {}


@lru_cache(maxsize=4096)
def _verdicts(path: Path, size: int, changed: int) -> Verdicts:
    """What a file says, by instance; empty where it is of no known form. `size`, `changed`: for the cache."""
    try:
        if path.suffix == ".jsonl":
            lines = [x for x in path.read_bytes().splitlines() if x.strip()]
            # the first line tells most files of rollouts apart, which may be long
            return _predictions([parse(x) for x in lines]) if lines and _predictions([parse(lines[0])]) else {}
        data = whole(path)
    except (ValueError, OSError, RecursionError):
        return {}
    if isinstance(data, list):
        return _predictions(data)
    if not isinstance(data, dict) or is_terminal_run(data):
        return {}
    if (done := next((data[k] for k in _RESOLVED if _ids(data.get(k))), None)) is not None or any(
        _ids(data.get(k)) for k in _OTHERS
    ):
        return _summary(data, done or [])
    # one instance's own report: its folder is named by it
    if isinstance(data.get("resolved"), bool):
        name = word(data.get("instance_id"), path.parent.name)
        return {name: {"resolved": data["resolved"], "tests": data.get("tests_status")}}
    for value in data.values():
        if isinstance(value, list) and (named := _predictions(value)):
            return named
    rows = {str(k): v for k, v in data.items() if isinstance(v, dict)}
    if rows and all("model_patch" in v or "instance_id" in v for v in rows.values()):
        return _predictions(list(rows.values()))
    return {
        k: {"resolved": v["resolved"], "tests": v.get("tests_status")}
        for k, v in rows.items()
        if isinstance(v.get("resolved"), bool)
    }


def _ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(x, str) for x in value[:100])


def _summary(data: dict[str, Any], resolved: list[Any]) -> Verdicts:
    """Of a run's report: what is not among the resolved ones was not solved."""
    done = {str(x) for x in resolved}
    known = done | {str(x) for k in _OTHERS for x in listing(data.get(k))}
    return {k: {"resolved": k in done} for k in known}


def _predictions(rows: list[Any]) -> Verdicts:
    out: dict[str, dict[str, Any]] = {}
    for row in rows:
        r = mapping(row)
        name, patch = word(r.get("instance_id")), r.get("model_patch")
        if not name or not (isinstance(patch, str) or isinstance(r.get("resolved"), bool)):
            return {}
        # rollouts have turns; a file of these is none of verdicts
        if any(k in r for k in ("messages", "trajectory", "history", "turns")):
            return {}
        out[name] = {"patch": patch} if isinstance(patch, str) and patch.strip() else {}
        if isinstance(r.get("resolved"), bool):
            out[name]["resolved"] = r["resolved"]
    return out
