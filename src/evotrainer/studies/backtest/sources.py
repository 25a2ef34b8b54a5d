"""What a backtest replays on: branches of our runs, or anybody's rollouts with a recipe inferred from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evotrainer.errors import ConfigError, StoreError
from evotrainer.factors.payable import unpayable
from evotrainer.harness import Batch, HarnessContext
from evotrainer.records.output import Progress
from evotrainer.records.recipe import Recipe
from evotrainer.rules.recipes import evaluated

if TYPE_CHECKING:
    from evotrainer.harness.columns.traits import Traits
    from evotrainer.studies.audit.engine import SourceFiles
    from evotrainer.studies.audit.units import OpenedSource


@dataclass(frozen=True, slots=True)
class Subject:
    """Rollouts of one policy with the recipe they were trained under, as far as it is known."""

    name: str
    batch: Batch
    recipe: Recipe
    context: HarnessContext
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """What was inferred rather than recorded: `paid`, `group_size`."""
    skipped: tuple[str, ...] = ()
    """What could not be read."""


def is_own(path: Path) -> bool:
    """Is this a run folder of ours, with a ledger?"""
    return (path / "ledger.db").is_file()


def subjects(
    paths: Sequence[Path],
    *,
    branch: str | None = None,
    split: str = "search",
    paid: Mapping[str, float] | None = None,
    format: str | None = None,
    cache: Path | None = None,
    workers: int | None = None,
) -> list[Subject]:
    """Of a run: its champion, or `branch`, on one split. Of anything else: every run, branch, split, policy in it.

    `paid`: weights of the reward components where no ledger tells them; else they are inferred where a weighted sum
    reproduces every reward. ConfigError where there is nothing to replay on.
    """
    out: list[Subject] = []
    rest = [p for p in paths if not is_own(p)]
    for p in paths:
        if is_own(p):
            out.append(_of_run(p, branch, split))
    if rest:
        out += _from_other_tools(rest, paid, format, cache, workers)
    if not any(s.batch.n for s in out):
        reasons = "; ".join(w for s in out for w in s.skipped[:2])
        raise ConfigError(
            f"no rollout could be read in {', '.join(map(str, paths))}"
            + (f": {reasons}" if reasons else "")
            + "; `evotrainer audit` says what is there"
        )
    return [s for s in out if s.batch.n]


def _of_run(folder: Path, branch: str | None, split: str) -> Subject:
    from evotrainer import api
    from evotrainer.harness.columns.source import stored
    from evotrainer.records.reading import read_batches

    if split not in ("search", "train"):
        raise ConfigError(f"--split {split}: give search or train; gate and cert belong to the judge")
    run = api.open_run(folder)
    tree = run.state
    trials = {name: [t.trial for t in b.complete] for name, b in tree.branches.items()}
    name = branch or tree.leader
    if name not in tree.branches or not trials[name]:
        known = ", ".join(b for b, t in trials.items() if t) or "none yet"
        raise ConfigError(f"{folder} has no trained branch {name!r}; there are: {known}")
    batch = Batch.over(stored(read_batches([folder / "rollouts" / t for t in trials[name]], split=split)))
    if not batch.n + batch.n_faults:
        raise StoreError(f"{folder}: no {split} rollouts of {name} are stored")
    recipe = tree.branches[name].recipe
    context = HarnessContext(
        recipe=recipe,
        proxy=tree.proxy,
        max_tokens=evaluated(run.task).max_tokens,
        unpayable=unpayable(tree.environment),
    )
    return Subject(f"{folder.name} {name} {split}", batch, recipe, context)


def _from_other_tools(
    paths: Sequence[Path],
    paid: Mapping[str, float] | None,
    format: str | None,
    cache: Path | None,
    workers: int | None,
) -> list[Subject]:
    from evotrainer.studies.audit.reading import batch_of, known_of, own_training, policies_apart, subjects_of

    out = []
    for source, whole, traits in opened(paths, format, cache, workers):
        skipped = tuple(f"{s.where}: {s.reason}" for s in whole.skipped)
        own = own_training(source.paths[0][0])
        if not traits.n:
            out.append(Subject(source.label, Batch.of(()), Recipe(), HarnessContext(), skipped=skipped))
        for name, rows in policies_apart(whole, traits, subjects_of(traits)):
            batch = batch_of(whole, traits, rows)
            known = known_of(own, batch, traits)
            recipe, assumed = (known.recipe, {}) if known else _inferred(batch, paid)
            title = f"{Path(source.label).name} {name}".strip()
            out.append(Subject(title, batch, recipe, HarnessContext(recipe=recipe), assumed, skipped))
    return out


def opened(
    paths: Sequence[Path],
    format: str | None,
    cache: Path | None,
    workers: int | None,
    progress: Progress | None = None,
) -> list[tuple[SourceFiles, OpenedSource, Traits]]:
    """Sources of anybody's rollouts with their traits; what was read once is kept in `cache`."""
    from evotrainer.studies.audit import default_cache
    from evotrainer.studies.audit.engine import open_all, sources_of
    from evotrainer.studies.audit.trait_cache import read_traits

    folder = cache or default_cache()
    sources, unknown = sources_of(paths, format)
    if not sources:
        why = f": {unknown[0].where}: {unknown[0].reason}" if unknown else ""
        raise ConfigError(f"nothing to read in {', '.join(map(str, paths))}{why}")
    out = []
    for source in sources:
        whole = open_all(source, folder, workers, progress)
        out.append((source, whole, read_traits(whole, folder, workers, progress)))
    return out


def _inferred(batch: Batch, paid: Mapping[str, float] | None) -> tuple[Recipe, dict[str, Any]]:
    """A recipe of what can be told from rollouts: what is paid, and the size of groups."""
    from evotrainer.studies.audit.curve import paid_weights

    weights = dict(paid) if paid is not None else paid_weights(batch) or {}
    missing = sorted(set(weights) - set(batch.component_names))
    if paid is not None and missing:
        stored = ", ".join(batch.component_names) or "none"
        raise ConfigError(f"--paid: no rollout has the reward component {', '.join(missing)}; stored: {stored}")
    sizes = batch.sizes[batch.sizes > 1]
    size = int(np.bincount(sizes).argmax()) if len(sizes) else 2
    assumed: dict[str, Any] = {"group_size": size}
    if paid is None and weights:
        assumed["paid"] = weights
    return Recipe(rewards=weights, group_size=max(2, size)), assumed
