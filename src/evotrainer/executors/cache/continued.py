"""Trainings that others go on from (`Recipe.start`): a training that the cache has is put where it is gone on from, and
one that was made on the way is kept as the training that it is."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.executors.cache.load import POLICY, renamed_rollouts
from evotrainer.executors.cache.rollouts import by_split, lost_any, renamed, to_bytes
from evotrainer.executors.cache.store import CacheEntry, Manifest
from evotrainer.executors.spec import TrialSpec, trial_dir
from evotrainer.executors.start_checkpoint import ROLLOUTS
from evotrainer.records.durable import fsync, sha256_tree
from evotrainer.records.events import FromCache, TrialFinished
from evotrainer.trainers.continued import NOTE, STARTED, EarlierTraining, notes

if TYPE_CHECKING:
    from evotrainer.executors.cache.keys import Keys
    from evotrainer.executors.cache.save import Members


def earlier(spec: TrialSpec) -> list[TrialSpec]:
    """The trainings that a trial goes on from, as trials of their own with its seed; the latest first."""
    if not spec.train:
        return []
    return [spec.model_copy(update={"recipe": r}) for r in reversed(spec.recipe.chain[:-1])]


def in_order(
    todo: Sequence[TrialSpec], making: Mapping[str, str], keys: Keys
) -> tuple[list[TrialSpec], list[TrialSpec]]:
    """Trials to compute now, and those that wait, since one of these trains the same, or what they go on from.
    `making`: trial -> key of what it trains, of those that are kept."""
    now: list[TrialSpec] = []
    later: list[TrialSpec] = []
    trained: set[str] = set()
    for spec in todo:
        needed = [keys.making(s) for s in earlier(spec)] if spec.trial in making else []
        own = {making[spec.trial]} if spec.train and spec.trial in making else set()
        (later if trained & {*own, *needed} else now).append(spec)
        trained |= {*own, *needed} if own else set()
    return now, later


def lay_start(run_dir: Path, staged: Path, spec: TrialSpec, depth: int, key: str, entry: CacheEntry) -> None:
    """Put a known training where a trial goes on from it: `depth` recipes before the trial's own, from 1.

    IntegrityError where the entry is damaged; then nothing is in its place.
    """
    m = entry.manifest
    at = staged.joinpath(*[STARTED] * depth)
    at.mkdir(parents=True)
    entry.copy(POLICY, at / "policy")
    (at / ROLLOUTS).write_bytes(to_bytes(renamed_rollouts(entry, spec)))
    cached = FromCache(parts=(f"start {key}",), cpu_s=m.cpu_s, wall_s=m.wall_s)
    note = EarlierTraining(policy="policy", policy_sha256=m.policy_sha256, curve=m.curve, cached=cached)
    (at / NOTE).write_text(note.model_dump_json(), encoding="utf-8")
    for p in (p for p in staged.rglob("*") if p.is_file()):
        fsync(p)
    to = trial_dir(run_dir, spec.trial)
    to.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(to / STARTED, ignore_errors=True)
    (staged / STARTED).rename(to / STARTED)


def made_on_the_way(
    run_dir: Path, spec: TrialSpec, result: TrialFinished, keys: Keys
) -> Iterator[tuple[str, Manifest, Members]]:
    """(key, manifest, members) of the earlier trainings that a trial made, as far as they lie in its folder still and
    no fault of the infrastructure took part. IntegrityError where its rollouts are not what its result says."""
    import pyarrow.compute as pc

    if result.status != "complete" or result.canary_flips or not earlier(spec):
        return
    mine = (spec.run, spec.branch)
    table = by_split(run_dir, result.parts, result.parts_sha256).get("train")
    if table is None or lost_any(table) or renamed(table, mine, mine) is None:
        return
    for at, note in notes(trial_dir(run_dir, spec.trial)):
        if note.cached is not None:
            return  # it, and what came before it, is from the cache
        before = len(at.relative_to(trial_dir(run_dir, spec.trial)).parts)
        policy = at / note.policy
        members: dict[str, Any] = {f"{POLICY}{p}": policy / p for p in sha256_tree(policy, policy)}
        files = {f"{POLICY}{p}": sha for p, sha in sha256_tree(policy, policy).items()}
        members[ROLLOUTS] = data = to_bytes(table.filter(pc.less_equal(table["step"], len(note.curve))))
        files[ROLLOUTS] = hashlib.sha256(data).hexdigest()
        cpu_s = note.curve[-1].get("cpu_s", 0.0)
        manifest = Manifest(
            run=spec.run,
            branch=spec.branch,
            cpu_s=round(cpu_s, 3),
            wall_s=round(cpu_s * result.wall_s / result.cpu_s if result.cpu_s else 0.0, 3),
            peak_rss_mb=result.peak_rss_mb,
            policy_sha256=note.policy_sha256,
            start_sha256=next((n.policy_sha256 for p, n in notes(at)), ""),
            curve=note.curve,
            files=files,
        )
        yield keys.making(earlier(spec)[before - 1]), manifest, members
