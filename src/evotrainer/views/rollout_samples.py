"""Which rollouts a reader gets to see: the ones findings quote, and a sample of each branch. Never gate or cert."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.records.rollout import Rollout
from evotrainer.records.sealed import SealedSplits
from evotrainer.views.model import TRAININGS, RunView

SAMPLES = 12
"""Search rollouts shown per branch."""
QUOTED = 400
"""Most quoted rollouts loaded for a whole run."""

# how many of each kind a sample holds, if there are that many; the rest is filled in this order
_QUOTA = (("passes the proxy, wrong", 4), ("wrong", 3), ("correct", 3), ("cut at the token limit", 1), ("fault", 1))


def attach_rollouts(view: RunView, folder: Path) -> None:
    """Load quoted rollouts and samples into `view.rollouts`; folders that cannot be read are named in `view.unread`."""
    wanted = list(dict.fromkeys(q.rollout for b in view.branches.values() for f in b.findings for q in f.quotes))
    wanted += [q.rollout for v in view.coevolution.versions for q in v.body.quotes if q.rollout not in wanted]
    trial_folders = [folder / "rollouts" / t.id for t in view.trials]
    for r in _load(view, trial_folders, ids=wanted[:QUOTED]):
        view.rollouts[r.id] = r
    for b in view.branches.values():
        found = [
            r
            for t in b.trials
            if t.purpose in TRAININGS
            for r in _load(view, [folder / "rollouts" / t.id], split="search")
        ]
        for r, why in sample(found, view.proxy):
            view.rollouts[r.id] = r
            b.samples.append((r.id, why))


def kind_of(r: Rollout, proxy: tuple[str, str] | None) -> str:
    """One of the kinds a sample is made of."""
    if r.error_kind:
        return "fault"
    if r.finish == "length":
        return "cut at the token limit"
    if r.outcome == "correct":
        return "correct"
    passed = (r.components.get(proxy[0]) or 0) if proxy else 0
    return "passes the proxy, wrong" if passed >= 1 and r.outcome == "incorrect" else "wrong"


def sample(
    rollouts: Iterable[Rollout], proxy: tuple[str, str] | None, size: int = SAMPLES
) -> list[tuple[Rollout, str]]:
    """(rollout, kind) of up to `size` rollouts of the last step, telling kinds first, seeds and tasks mixed.

    The choice depends only on ids of tasks and rollouts, so the same store gives the same sample; branches are shown
    on the same tasks where they can be, so that two attempts at one task can be compared.
    """
    pool = [r for r in rollouts if not SealedSplits.covers(r.split)]
    last: dict[int, int] = {}
    for r in pool:
        last[r.seed] = max(r.step, last.get(r.seed, r.step))
    kinds: dict[str, list[Rollout]] = {k: [] for k, _ in _QUOTA}
    tasks: dict[str, set[str]] = {k: set() for k, _ in _QUOTA}
    spare: list[tuple[Rollout, str]] = []
    for r in sorted((r for r in pool if r.step == last[r.seed]), key=lambda r: (_mixed(r.task), r.id)):
        kind = kind_of(r, proxy)
        fresh = r.task not in tasks[kind]
        tasks[kind].add(r.task)
        kinds[kind].append(r) if fresh else spare.append((r, kind))
    chosen = [(r, k) for k, n in _QUOTA for r in kinds[k][:n]][:size]
    rest = [(r, k) for k, n in _QUOTA for r in kinds[k][n:]] + spare
    chosen += rest[: size - len(chosen)]
    order = [k for k, _ in _QUOTA]
    return sorted(chosen, key=lambda c: (order.index(c[1]), c[0].id))


def _mixed(task: str) -> str:
    """An order of tasks that is the same for all branches and follows no property of theirs."""
    return hashlib.sha256(task.encode("utf-8", "replace")).hexdigest()


def find(folder: Path, rollout: str) -> Rollout | None:
    """A train or search rollout of a run by its id (or a unique start of 4 or more digits); None if there is none,
    ConfigError where several begin so."""
    import pyarrow.compute as pc

    from evotrainer.records.reading import columns_of, load

    if len(rollout) < 4:
        return None
    folders = sorted(p for p in (folder / "rollouts").glob("*") if p.is_dir())
    named = {
        row["id"]: f
        for f in folders
        for table in columns_of(f, ("id", "split"))
        for row in table.filter(pc.starts_with(table["id"], rollout)).to_pylist()
        if not SealedSplits.covers(row["split"])
    }
    if len(named) > 1:
        raise ConfigError(f"{len(named):,} rollouts begin with {rollout}: give more digits, as {sorted(named)[0][:12]}")
    return load([*named.values()], ids=[*named])[0] if named else None


def _load(
    view: RunView, folders: Sequence[Path], ids: Sequence[str] | None = None, split: str | None = None
) -> list[Rollout]:
    from evotrainer.records.reading import load

    present = [f for f in folders if f.is_dir()]
    if not present or ids == []:
        return []
    try:
        got = load(present, ids=ids, split=split)
    except (EvoTrainerError, OSError) as e:
        names = ", ".join(f.name for f in present[:3]) + (", ..." if len(present) > 3 else "")
        view.unread.append(f"rollouts of {names}: {e}")
        return []
    return [r for r in got if not SealedSplits.covers(r.split)]
