"""Scores and canaries of a trial, read again from its stored rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from evotrainer.errors import EvoTrainerError, IntegrityError
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.differences import CLOSE
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import Recipe
from evotrainer.records.regular_file import read_text
from evotrainer.records.rollout import greedy_split
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import cause
from evotrainer.rules.guards import protocol_on
from evotrainer.rules.recipes import PROTOCOL, protocol
from evotrainer.verify.report import Problem, Record


def scores(record: Record, event: Event) -> Iterator[Problem]:
    """Each score of a trial from its stored rollouts, of both readings: the share of correct attempts of every task."""
    t: TrialFinished = event.body
    if t.status != "complete" or not t.parts:
        return
    try:
        found = graded(record.folder, t)
    except EvoTrainerError as e:
        yield Problem("rollouts", f"trial {t.trial}: its scores cannot be computed again: {e}")
        return
    for s in t.scores:
        if s.encrypted:
            continue
        record.checked["scores"] += 1
        record.checked["greedy readings"] += bool(s.greedy_per_task)
        for split, recorded in ((s.split, s.per_task), (greedy_split(s.split), s.greedy_per_task)):
            per_task = found.get((split, s.step), {})
            wrong = [
                k for k in sorted(per_task.keys() | recorded.keys()) if not _near(per_task.get(k), recorded.get(k))
            ]
            if wrong:
                stored, k = per_task.get(wrong[0]), wrong[0]
                yield Problem(
                    "trials",
                    f"trial {t.trial}: {len(wrong)} {split} scores do not follow from its rollouts, e.g. task {k}: "
                    f"{recorded.get(k)} in the ledger, {stored} in the rollouts",
                )


def priced(record: Record, event: Event) -> Iterator[Problem]:
    """A trial costs what its time does by the prices of the task file; of a run whose prices were changed on the way
    nothing is compared."""
    t, price = event.body, record.task.budget.price
    if any(o.startswith("budget.price") for e in record.of("resumed") for o in e.body.overrides):
        return
    due = None if price is None else price.usd(t.cpu_s, t.gpu_s)
    if (due is None) != (t.usd is None) or (due is not None and abs(due - (t.usd or 0.0)) > 1e-5):
        yield Problem("trials", f"trial {t.trial}: it cost {t.usd} US dollars, by its prices {due}")


def protocol_held(record: Record, event: Event) -> Iterator[Problem]:
    """Evaluations sampled as the frozen protocol says: at the deployment temperature of the trial's recipe, else like
    every other policy of the run. From the score itself, and from the specification, which the ledger vouches for."""
    t: TrialFinished = event.body
    state = record.state_before(event)
    b = state.branches.get(t.branch) or state.probes.get(t.branch)
    recipe = b.recipe if b else record.task.recipe
    for s in t.scores:
        if s.temperature != recipe.deploy_temperature:
            yield Problem(
                "trials",
                f"trial {t.trial}: {s.split} was sampled at deployment temperature {s.temperature}, its recipe has "
                f"{recipe.deploy_temperature}",
            )
    try:
        recorded = json.loads(read_text(record.folder / "trials" / t.trial / "spec.json"))["protocol"]
    except (OSError, ValueError, LookupError, TypeError):
        return  # what a missing or damaged file means is said where the ledger's checksums are compared
    guard = next((g for g in record.task.guard if g.name == keys.guard_of(t.trial)), None)
    due = protocol_on(record.task, recipe, guard, "") if guard else protocol(record.task, recipe, {})
    for name in PROTOCOL:
        if name != "knobs" and recorded.get(name) != getattr(due, name):
            text = f"evaluations sampled with {name} {recorded.get(name)}, the run's protocol is {getattr(due, name)}"
            yield Problem("trials", f"trial {t.trial}: {text}")


def check_start(record: Record, event: Event) -> Iterator[Problem]:
    """A training went on from the policy that its recipe says: where the run trained that recipe under the same seed by
    itself, from that very policy."""
    t: TrialFinished = event.body
    recipe = recipe_of(record, t)
    if recipe is None or t.status != "complete" or not t.steps:
        return
    if (recipe.start is not None) != bool(t.start_sha256):
        recorded = "a policy that it went on from" if t.start_sha256 else "no policy that it went on from"
        yield Problem("trials", f"trial {t.trial}: it tells of {recorded}, its recipe does not say the same")
    for other in record.finished.values() if recipe.start is not None else ():
        trained = other.steps and other.status == "complete" and other.seed == t.seed
        plain = recipe_of(record, other) if trained else None
        same = plain is not None and plain.model_copy(update={"deploy_temperature": None}) == recipe.start
        if same and other.policy_sha256 != t.start_sha256:
            yield Problem("trials", f"trial {t.trial}: it went on from another policy than that of {other.trial}")


def recipe_of(record: Record, t: TrialFinished) -> Recipe | None:
    """Of the branch or search training that a trial belongs to."""
    if (b := record.state.branches.get(t.branch)) is not None:
        return b.recipe
    p = record.state.probes.get(t.branch)
    return p.recipe if p else None


def flips(record: Record, event: Event) -> Iterator[Problem]:
    """The grading canaries that flipped, from its stored rollouts; none that is void has a reward."""
    import polars as pl

    from evotrainer.records.canaries import canary_flips
    from evotrainer.records.reading import scan

    t: TrialFinished = event.body
    stores = stores_of(record.folder, t)
    shown = tuple(
        f for f in t.canary_flips if not SealedSplits.unread(t.scores) or not f.split.startswith(SealedSplits.SPLITS)
    )
    if t.status != "complete" or not t.parts or not stores:
        return
    try:
        found = canary_flips(stores)
        void = [i for f in t.canary_flips for i in (*f.void, *f.culprits)]
        paid = scan(stores).filter(pl.col("id").is_in(void) & pl.col("reward").is_not_null()) if void else None
        wrong = [] if paid is None else paid.select("id").collect()["id"].to_list()
    except (EvoTrainerError, pl.exceptions.PolarsError, ValueError) as e:
        yield Problem("rollouts", f"trial {t.trial}: its grading canaries cannot be read again: {cause(e)}")
        return
    if t.canary_flips:
        record.checked["canary flips"] += len(t.canary_flips)
    if found != shown:
        yield Problem("trials", f"trial {t.trial}: its flipped canaries are not those that its rollouts tell of")
    for i in wrong[:1]:
        yield Problem(
            "rollouts", f"trial {t.trial}: rollout {i} is void, since a grading canary flipped, and has a reward"
        )


def stores_of(folder: Path, t: TrialFinished) -> list[Path]:
    """A trial's stores that can be read: that of gate and cert only once the run has closed."""
    kinds = SealedSplits.STORES[:1] if SealedSplits.unread(t.scores) else SealedSplits.STORES
    return [p for p in (folder / kind / t.trial for kind in kinds) if p.is_dir()]


def graded(folder: Path, t: TrialFinished) -> dict[tuple[str, int], dict[str, float]]:
    """(split, step) -> task -> share of correct attempts, of the evaluations in a trial's stores."""
    import polars as pl

    from evotrainer.records.reading import scan

    wanted = {(split, s.step) for s in t.scores for split in (s.split, greedy_split(s.split))}
    stores = stores_of(folder, t)
    try:
        rows = (
            scan(stores)
            .filter(pl.col("split").is_in(sorted({s for s, _ in wanted})))
            .filter(pl.col("error_kind").is_null() & (pl.col("outcome") != "unknown"))
            .group_by("split", "step", "task")
            .agg(share=(pl.col("outcome") == "correct").cast(pl.Float64).mean())
            .collect()
        )
    except pl.exceptions.PolarsError as e:
        raise IntegrityError(f"rollouts of {t.trial} are damaged ({cause(e)})") from e
    out: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows.iter_rows(named=True):
        key = (str(row["split"]), int(row["step"]))
        if key in wanted:
            out.setdefault(key, {})[str(row["task"])] = float(row["share"])
    return out


def _near(a: float | None, b: float | None) -> bool:
    return (a is None) == (b is None) and (a is None or b is None or abs(a - b) <= CLOSE)
