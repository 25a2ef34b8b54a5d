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

from evotrainer.importers.base import Fault
from evotrainer.importers.common import listing, mapping, word
from evotrainer.importers.formats.terminal_bench import is_terminal_run
from evotrainer.importers.lenient_json import beginning, parse, read_json
from evotrainer.records.regular_file import open_regular, read_bytes
from evotrainer.records.rollout import Outcome, Rollout

DISPUTED = "verdicts"
"""In a rollout's detail: the words that say which reports disagree on it."""
ABOVE = 4
"""Folders above a trajectory that are looked at, its own one among them."""
MAX_BYTES = 1 << 26
_NAME = re.compile(
    r"(?:^|[._-])(?:reports?|results?(?:_summary)?|resolved|eval(?:uation)?(?:_results?)?|preds?|predictions?|swebench)"
    r"[\w.-]*\.jsonl?$",
    re.IGNORECASE,
)
_REPORT = re.compile(
    rb'"(?:total|submitted|completed|(?:un)?resolved|empty_patch|error|incomplete)_(?:instances|ids)"\s*:'
)
"""What a run's report begins with, whatever its name (the harness writes MODEL.RUN.json)."""
_MODEL = re.compile(rb'"model_name_or_path"\s*:\s*"([^"]*)"')
_FOLDERS = ("", "results", "evaluation", "evaluation_results", "eval", "eval_results", "logs", "reports")
_RESOLVED = ("resolved_ids", "resolved_instances", "resolved")
_UNSOLVED = ("completed_ids", "unresolved_ids", "empty_patch_ids", "generated", "applied", "with_logs", "no_generation",
             "unresolved", "no_apply", "test_timeout", "test_errored")  # fmt: skip
"""Lists of instances of a run's report that have a verdict, resolved or not."""
_FAULTS: dict[str, Fault] = {
    "error_ids": "judge",
    "no_logs": "judge",
    "install_fail": "container",
    "reset_failed": "container",
}
"""Lists of instances whose evaluation broke. Of `error_ids` a log that lies there says why: a patch that does not apply
is the policy's."""
_OTHERS = (*_UNSOLVED, *_FAULTS, "submitted_ids", "incomplete_ids")
"""Lists by which such a report is known. What was submitted and is in no other list has no verdict."""
KEYS = re.compile(rf'"(?:instance_id|model_patch|{"|".join((*_RESOLVED, *_OTHERS))})"'.encode())
"""What predictions and verdicts begin with."""
_ATTEMPT = frozenset({"response", "responses_create_params", "messages", "trajectory", "history", "turns", "steps"})
"""Fields of a record that holds the attempt itself: it is a rollout, whatever verdict stands in it."""
_LOG = 4 << 20

Verdicts = Mapping[str, dict[str, Any]]
"""Instance -> `resolved` (bool), `fault` (class, words), `patch`, `tests` as far as they are there."""


def is_results(path: Path) -> bool:
    """Is it such a file of verdicts, and no rollouts?"""
    return path.is_file() and _may_be(path) and bool(_read(path))


def _may_be(path: Path) -> bool:
    """Is a file named like verdicts, or does it begin like a run's report? So that trajectories are not read twice."""
    if _NAME.search(path.name):
        return True
    try:
        return path.suffix == ".json" and _REPORT.search(beginning(path, 4096)) is not None
    except (OSError, ValueError):
        return False


def is_near(results: Path, trajectory: Path) -> bool:
    """Does a file lie where verdicts and patches of this trajectory are looked for?"""
    folder = trajectory.resolve().parent
    above = [folder, *folder.parents][:ABOVE]
    return any(results.resolve().parent == (f / place if place else f) for f in above for place in _FOLDERS)


@lru_cache(maxsize=256)
def _models(folder: Path) -> frozenset[str]:
    """Models of the predictions in a folder, as the evaluation writes them in names of files and folders."""
    files = [p for p in _named(folder) if "pred" in p.name.lower() and p.stat().st_size <= MAX_BYTES]
    found = {m.decode("utf-8", "replace") for p in files for m in _MODEL.findall(read_bytes(p))}
    return frozenset(m.replace("/", "__") for m in found)


def with_verdict(r: Rollout, path: Path) -> Rollout:
    """The rollout with the outcome and patch that lie beside its file, where it has none of its own."""
    if r.error_kind or (r.outcome != "unknown" and r.detail.get("patch")):
        return r
    detail = dict(r.detail)
    outcome: Outcome = r.outcome
    # beside predictions of several models a verdict is of the one that its path names
    mine, models = r.policy.replace("/", "__"), _models(path.resolve().parent)
    mine = mine if mine in models and len(models) > 1 else ""
    for found in _nearby_facts(path, r.task):
        if mine and mine not in str(found.get("at", mine)):
            continue
        if outcome == "unknown" and DISPUTED in found:
            return replace(r, detail=detail | {DISPUTED: found[DISPUTED]})
        if (broke := found.get("fault")) is not None and outcome == "unknown":
            kind, why = broke
            detail["verdict_of"] = found["source"]
            return replace(r, finish="error", error=f"{why} ({found['source']})", error_kind=kind, detail=detail)
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


def _nearby_facts(path: Path, task: str) -> Iterator[dict[str, Any]]:
    """What the files near a trajectory say of its task, the nearest first."""
    if not task or "/" in task or "\\" in task or task in (".", ".."):
        return
    folder = path.resolve().parent
    for _ in range(ABOVE):
        for place in _FOLDERS:
            near = folder / place if place else folder
            own = near / task / "report.json"
            if task not in _read(own) and (both := _disputed(near, task)):
                # what the evaluation kept of the instance itself decides, where it is of one mind
                kept = [x for p in _deep(folder, task) if (x := _read(p).get(task)) is not None]
                if kept and len({x.get("resolved") for x in kept}) == 1:
                    yield {**kept[0], "source": f"{task}/report.json"}
                yield {DISPUTED: f"{' and '.join(both)} disagree on {task}: its outcome stays unknown"}
            for name in (own, *_named(near)):
                if (found := _read(name).get(task)) is not None:
                    short = name.name if name.parent == near else f"{name.parent.name}/{name.name}"
                    yield {**found, "source": short, "at": name}
        for name in _deep(folder, task):
            if (found := _read(name).get(task)) is not None:
                yield {**found, "source": f"{task}/report.json", "at": name}
        if folder.parent == folder:
            return
        folder = folder.parent


@lru_cache(maxsize=1024)
def _named(folder: Path) -> tuple[Path, ...]:
    """Files of a folder that may be verdicts."""
    try:
        return tuple(sorted(p for p in folder.iterdir() if p.is_file() and _may_be(p)))
    except OSError:
        return ()


def _disputed(near: Path, task: str) -> list[str]:
    """Two reports of a folder that are known by their content alone, one of which says that a task is solved and the
    other that it is not: of runs whose names are their own, nothing tells which one a trajectory belongs to."""
    verdicts: dict[bool, str] = {}
    for p in _named(near):
        resolved = None if _NAME.search(p.name) else _read(p).get(task, {}).get("resolved")
        if isinstance(resolved, bool):
            verdicts.setdefault(resolved, p.name)
    return sorted(verdicts.values()) if len(verdicts) > 1 else []


@lru_cache(maxsize=256)
def _runs(folder: Path) -> tuple[Path, ...]:
    """Folders in which SWE-bench's evaluation puts one folder an instance."""
    # the harness writes logs/run_evaluation/RUN/MODEL, agents' own evaluations eval_results/MODEL
    some = ((folder / "logs" / "run_evaluation", "*/*"), (folder / "eval_results", "*"))
    try:
        return tuple(sorted(p for base, at in some if base.is_dir() for p in base.glob(at) if p.is_dir()))
    except OSError:
        return ()


def forget_folders() -> None:
    """Look at folders again: a reading begins, and since the last one reports may have been put beside trajectories."""
    _named.cache_clear()
    _models.cache_clear()
    _runs.cache_clear()


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
            lines = [x for x in read_bytes(path).splitlines() if x.strip()]
            # the first line tells most files of rollouts apart, which may be long
            first = parse(lines[0]) if lines else None
            if not isinstance(first, dict) or _ATTEMPT & first.keys() or not _predictions([first]):
                return {}
            return _predictions([parse(x) for x in lines])
        data = read_json(path)
    except (ValueError, OSError, RecursionError):
        return {}
    if isinstance(data, list):
        return _predictions(data)
    if not isinstance(data, dict) or is_terminal_run(data):
        return {}
    if (done := next((data[k] for k in _RESOLVED if _ids(data.get(k))), None)) is not None or any(
        _ids(data.get(k)) for k in _OTHERS
    ):
        return _summary(path, data, done or [])
    # one instance's own report: its folder is named by it
    if isinstance(data.get("resolved"), bool):
        data = {word(data.get("instance_id"), path.parent.name): {k: data.get(k) for k in ("resolved", "tests_status")}}
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


def _summary(path: Path, data: dict[str, Any], resolved: list[Any]) -> Verdicts:
    """Of a run's report: what was evaluated and is not among the resolved ones was not solved."""
    out: dict[str, dict[str, Any]] = {str(x): {"resolved": True} for x in resolved}
    for name, kind in _FAULTS.items():
        for x in listing(data.get(name)):
            own = name == "error_ids" and _logged_outcome(path.parent, str(x))
            out.setdefault(str(x), own or {"fault": (kind, f"the evaluation of this instance broke: {name}")})
    for name in _UNSOLVED:
        for x in listing(data.get(name)):
            out.setdefault(str(x), {"resolved": False})
    return out


def _logged_outcome(folder: Path, task: str) -> dict[str, Any] | None:
    """What the log of an instance's evaluation says of its end, where it lies below the report's folder."""
    for run in (folder / "logs", folder / "eval_outputs", *_runs(folder)):
        log = run / task / "run_instance.log"
        try:
            with open_regular(log) as f:
                f.seek(max(0, f.seek(0, 2) - _LOG))
                words = f.read(_LOG).decode("utf-8", "replace")
        except OSError:
            continue
        if "Patch Apply Failed" in words:
            return {"resolved": False}
        if re.search(r"Test timed out|Timeout error", words):
            return {"fault": ("timeout", "the tests ran out of time")}
    return None


def _predictions(rows: list[Any]) -> Verdicts:
    out: dict[str, dict[str, Any]] = {}
    for row in rows:
        r = mapping(row)
        name, patch = word(r.get("instance_id")), r.get("model_patch")
        # OpenHands keeps the report of its own evaluation within
        report = mapping(mapping(r.get("test_result")).get("report"))
        resolved = r.get("resolved", report.get("resolved"))
        if not name or not (isinstance(patch, str) or isinstance(resolved, bool)):
            return {}
        # rollouts have turns; a file of these is none of verdicts
        if any(k in r for k in ("messages", "trajectory", "turns")) or r.get("history"):
            return {}
        out[name] = {"patch": patch} if isinstance(patch, str) and patch.strip() else {}
        if isinstance(resolved, bool):
            out[name]["resolved"] = resolved
        if report.get("error_eval") is True and resolved is not True:
            out[name]["fault"] = ("judge", "the evaluation of this instance broke: error_eval")
    return out
