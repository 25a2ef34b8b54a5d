"""A trial out of the cache: its files in the run folder as if it had run, and the result that says where it is from."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import EncryptedError, IntegrityError
from evotrainer.executors.cache.keys import policy_key
from evotrainer.executors.cache.rollouts import from_bytes, renamed, store_all
from evotrainer.executors.cache.store import CacheEntry, TrialCache
from evotrainer.executors.health import read_health
from evotrainer.executors.spec import TrialSpec, store_dirs, trial_dir, write_atomic
from evotrainer.records.durable import sha256_tree
from evotrainer.records.events import FromCache, TrialFinished
from evotrainer.records.faults import fault_point
from evotrainer.records.sealed import Key, SealedSplits

if TYPE_CHECKING:
    import pyarrow as pa

POLICY, ROLLOUTS = "policy/", "rollouts.parquet"
"""Members of entries."""
Spent = tuple[float, float]
"""CPU-seconds and seconds."""


@dataclass
class CacheHit:
    """The entries that the cache has of a trial."""

    spec: TrialSpec
    entries: dict[str, tuple[str, CacheEntry]] = field(default_factory=dict)
    """Part (`training`, `warm start`, `evaluation/<split>`) -> its key and entry."""

    @property
    def made(self) -> CacheEntry | None:
        """What holds the policy, where the trial makes one."""
        return next((e for part, (_, e) in self.entries.items() if not part.startswith("evaluation/")), None)

    @property
    def policy(self) -> str:
        """Key of that policy; empty without one."""
        return policy_key(below_policy(self.made.manifest.files)) if self.made else ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Splits whose evaluation the cache does not have."""
        splits = dict.fromkeys(p.split for p in self.spec.evals)
        return tuple(s for s in splits if f"evaluation/{s}" not in self.entries)

    @property
    def cost(self) -> Spent:
        """What its entries took when they were computed."""
        found = [e.manifest for _, e in self.entries.values()]
        return sum(m.cpu_s for m in found), sum(m.wall_s for m in found)

    @property
    def too_dear(self) -> bool:
        """Computed here it would have been stopped as an overrun of its limit."""
        return self.spec.cpu_limit_s is not None and self.cost[0] > self.spec.cpu_limit_s

    def drop_damaged(self, cache: TrialCache) -> bool:
        """Take damaged entries out of the cache; False where none is."""
        bad = [key for key, e in self.entries.values() if e.bad]
        for key in bad:
            cache.drop(key)
        return bool(bad)

    def close(self) -> None:
        for _, e in self.entries.values():
            e.close()


def below_policy(files: Mapping[str, str]) -> dict[str, str]:
    """The files of an entry's policy, by their path in it."""
    return {k.removeprefix(POLICY): sha for k, sha in files.items() if k.startswith(POLICY)}


def lay_down(
    run_dir: Path,
    staged: Path,
    spec: TrialSpec,
    found: CacheHit,
    proxy: tuple[str, str] | None,
    before: Spent,
    spent: TrialFinished | None,
) -> TrialFinished:
    """Put a trial's files together in `staged`, then into their places, the folder with `result.json` last.

    `proxy`: the environment's (proxy, true) components. `before`: the clocks before it was looked for; `spent`: the
    result of what was computed now. IntegrityError where an entry is damaged; then nothing is in its place.
    """
    trial = spec.trial
    folder = staged / "trials" / trial
    folder.mkdir(parents=True)
    if found.made is not None:
        found.made.copy(POLICY, folder / "policy")
    parts: list[tuple[str, str]] = []
    for sealed, store in enumerate(store_dirs(staged, trial)):
        own = dict.fromkeys(p.split for p in spec.evals if p.sealed == sealed)
        entries = [found.entries[f"evaluation/{s}"][1] for s in own]
        if not sealed and found.made is not None and ROLLOUTS in found.made.manifest.files:
            entries.insert(0, found.made)
        if entries or not sealed:  # a complete trial has this store, also an empty one
            tables = [renamed_rollouts(e, spec) for e in entries]
            key = Key.held(spec.key) if sealed and spec.key else None
            stored = store_all(store, [t for t in tables if t.num_rows], key)
            parts += [(str((store / name).relative_to(staged)), sha) for name, sha in stored]
    write_atomic(folder / "spec.json", spec.model_dump_json(indent=1))
    result = _result(run_dir, staged, spec, found, proxy, parts)
    cost, wall = found.cost
    mine = (spent.cpu_s, spent.wall_s) if spent else (0.0, 0.0)  # what was computed now is in entries by now
    taken = tuple(f"{part} {key}" for part, (key, _) in found.entries.items() if not _computed(part, spent))
    now = time.process_time() - before[0], time.monotonic() - before[1]
    result["cpu_s"], result["wall_s"] = round(mine[0] + now[0], 3), round(mine[1] + now[1], 3)
    result["gpu_s"] = spent.gpu_s if spent else 0.0
    earlier = FromCache(
        parts=taken, cpu_s=max(0.0, round(cost - mine[0], 3)), wall_s=max(0.0, round(wall - mine[1], 3))
    )
    finished = TrialFinished(**result, cached=earlier)
    (folder / "log.txt").write_text(f"taken from the cache: {', '.join(taken)}\n", encoding="utf-8")
    write_atomic(folder / "result.json", finished.model_dump_json())
    _into_place(run_dir, staged, trial)
    return finished


def _result(
    run_dir: Path,
    staged: Path,
    spec: TrialSpec,
    found: CacheHit,
    proxy: tuple[str, str] | None,
    parts: list[tuple[str, str]],
) -> dict[str, Any]:
    """The result but for what it cost."""
    made, evaluated = found.made, [e for part, (_, e) in found.entries.items() if part.startswith("evaluation/")]
    curve = made.manifest.curve if made else ()
    policy = f"trials/{spec.trial}/policy" if made else _relative(run_dir, spec.policy_dir)
    files = [staged / "trials" / spec.trial / name for name in ("spec.json", "policy")]
    manifests = [e.manifest for e in ([made] if made else []) + evaluated]
    order = {str(p.split): i for i, p in enumerate(sorted(spec.evals, key=lambda p: p.sealed))}
    scores = [s for e in evaluated for s in map(SealedSplits.score, e.manifest.scores)]
    scores.sort(key=lambda s: order[s.split])
    greedy = next((s.greedy_per_task for s in scores if s.split == "search"), None) or None
    return {
        "trial": spec.trial,
        "branch": spec.branch,
        "seed": spec.seed,
        "status": "complete",
        "steps": len(curve),
        "peak_rss_mb": max(m.peak_rss_mb for m in manifests),
        "policy_sha256": manifests[0].policy_sha256,
        "start_sha256": made.manifest.start_sha256 if made else "",
        "policy_path": policy,
        "scores": tuple(map(Key.held(spec.key).score, scores) if spec.key else scores),
        "curve": curve,
        "health": read_health(spec, staged / "rollouts" / spec.trial, proxy, curve, greedy),
        "parts": tuple(name for name, _ in parts),
        "parts_sha256": tuple(sha for _, sha in parts),
        "files": {k: v for p in files if p.exists() for k, v in sha256_tree(p, staged).items()},
        "env_knobs": {**spec.protocol.knobs, **spec.env_knobs},
    }


def _relative(run_dir: Path, policy: str) -> str:
    at = (run_dir / policy).resolve()
    return str(at.relative_to(run_dir.resolve())) if at.is_relative_to(run_dir.resolve()) else str(run_dir / policy)


def _computed(part: str, spent: TrialFinished | None) -> bool:
    """Whether a part was computed now."""
    return spent is not None and part in {f"evaluation/{s.split}" for s in spent.scores}


def renamed_rollouts(entry: CacheEntry, spec: TrialSpec) -> pa.Table:
    """An entry's rollouts as the trial would have stored them; IntegrityError where the entry is damaged."""
    m, data = entry.manifest, entry.read(ROLLOUTS)
    try:
        table = renamed(from_bytes(bytes(SealedSplits.plain(data))), (m.run, m.branch), (spec.run, spec.branch))
    except (IntegrityError, EncryptedError) as e:
        raise entry.damaged(e) from None
    if table is None:
        raise entry.damaged("its rollouts have names that are not theirs")
    return table


def _into_place(run_dir: Path, staged: Path, trial: str) -> None:
    for own in (*reversed(store_dirs(staged, trial)), trial_dir(staged, trial)):
        to = run_dir / own.relative_to(staged)
        shutil.rmtree(to, ignore_errors=True)  # what a kill left in the middle of these three
        if own.is_dir():
            to.parent.mkdir(parents=True, exist_ok=True)
            own.rename(to)
            fault_point("cache:placed")
