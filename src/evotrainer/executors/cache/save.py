"""A computed trial as entries of the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.executors.cache.keys import Keys, policy_key
from evotrainer.executors.cache.load import POLICY, ROLLOUTS
from evotrainer.executors.cache.rollouts import by_split, lost_any, renamed, to_bytes, with_greedy
from evotrainer.executors.cache.store import Manifest
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.sealed import Key, SealedSplits

if TYPE_CHECKING:
    import pyarrow as pa

Members = Mapping[str, Path | bytes]


def entries_of(
    run_dir: Path,
    spec: TrialSpec,
    result: TrialFinished,
    keys: Keys,
    making: str,
    policy: str,
    own: Key | None = None,
) -> Iterator[tuple[str, Manifest, Members]]:
    """(key, manifest, members) of what a trial computed; nothing of one that failed, and no part that a fault of the
    infrastructure took part in: it would not come out the same again.

    `making`: key of the policy it made, empty where it was given one, whose key is `policy`. `own`: what evaluations on
    gate and cert are encrypted with. IntegrityError where files in the run folder are not what its result says.
    """
    splits = [p.split for p in spec.evals]
    if result.status != "complete" or result.canary_flips or (spec.train and "train" in splits):
        return
    tables = with_greedy(by_split(run_dir, result.parts, result.parts_sha256))
    mine = (spec.run, spec.branch)
    sound = {s: t for s, t in tables.items() if not lost_any(t) and renamed(t, mine, mine) is not None}
    cost = shares(spec, result, {s: t.num_rows for s, t in tables.items()})
    common: dict[str, Any] = {"run": spec.run, "branch": spec.branch, "policy_sha256": result.policy_sha256}
    common |= {"peak_rss_mb": result.peak_rss_mb, "start_sha256": result.start_sha256}
    if making:
        at = f"{result.policy_path}/"
        policy_files = {k.removeprefix(at): v for k, v in result.files.items() if k.startswith(at)}
        policy = policy_key(policy_files)
        files = {f"{POLICY}{k}": v for k, v in policy_files.items()}
        members: dict[str, Any] = {f"{POLICY}{k}": run_dir / f"{at}{k}" for k in policy_files}
        if spec.train and "train" not in sound:
            return
        if spec.train:
            _with_rollouts(files, members, sound["train"])
        yield making, Manifest(**common, **cost["making"], curve=result.curve, files=files), members
    for split, sealed in {p.split: p.sealed for p in spec.evals}.items():
        scores = tuple(SealedSplits.score(s) for s in result.scores if s.split == split)
        if split not in sound or not scores or any(s.errors for s in scores):
            continue
        scores = tuple(map(own.score, scores)) if own else scores
        files, members = {}, {}
        _with_rollouts(files, members, sound[split], own if sealed else None)
        key = keys.evaluation(spec, policy, split)
        yield key, Manifest(**common, **cost[split], scores=scores, files=files), members


def _with_rollouts(files: dict[str, str], members: dict[str, Any], table: pa.Table, own: Key | None = None) -> None:
    data = to_bytes(table)
    members[ROLLOUTS] = data = own.encrypt(data) if own else data
    files[ROLLOUTS] = hashlib.sha256(data).hexdigest()


def shares(spec: TrialSpec, result: TrialFinished, rows: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What each part of a trial cost, in CPU-seconds and seconds: the training by its own clock, the evaluations the
    rest, by their rollouts. A warm start, which has no such clock, has all of it."""
    total, earlier = result.computed_cpu_s, result.cached.wall_s if result.cached else 0.0
    if spec.train:
        making = min(total, result.curve[-1].get("cpu_s", total)) if result.curve else total
    else:
        making = 0.0 if spec.policy_dir else total
    evaluated = {s: n for s, n in rows.items() if not (spec.train and s == "train")}
    all_rows = sum(evaluated.values()) or 1
    cpu = {"making": making, **{s: (total - making) * n / all_rows for s, n in evaluated.items()}}
    per_s = (result.wall_s + earlier) / total if total else 0.0
    return {part: {"cpu_s": round(c, 3), "wall_s": round(c * per_s, 3)} for part, c in cpu.items()}
