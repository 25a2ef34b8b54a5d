"""Verification of a run folder: is everything the ledger says still true of what lies on the disk?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evotrainer.errors import StoreError
from evotrainer.records.chain import Event
from evotrainer.records.durable import sha256_file
from evotrainer.records.events import TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.lineage import Lineage
from evotrainer.records.reading import check_folder, is_store, read_checksum

STORES = ("rollouts", "sealed")
"""Subfolders of a run that hold one rollout store per trial."""
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not hold. `area`: ledger, lineage, policy or rollouts."""

    area: str
    message: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, and every problem found; no problem: the run is as it was recorded."""

    folder: Path
    problems: tuple[Problem, ...]
    checked: dict[str, int]
    """events, branches, trials, policies, parts, rollouts"""
    head: str = ""
    """Hash of the last event: noted elsewhere, it proves later that no event was cut off the end."""

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_run(folder: Path | str) -> VerifyReport:
    """Check a run folder whole: hash chain, recipes, single factors, trials, policies, parts, rollouts.

    Reads only, and may be used while the run is writing. Raises StoreError where there is no ledger to read.
    """
    folder = Path(folder)
    problems: list[Problem] = []
    checked: Counter[str] = Counter()
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        problems += [Problem("ledger", p) for p in ledger.verify()]
        try:
            events = ledger.events()
        except StoreError:  # already among the problems; what cannot be believed is not checked further
            events = []
    lineage = Lineage.from_events(events)
    problems += [Problem("lineage", p) for p in _lineage_problems(lineage)]
    finished = [e.body for e in events if isinstance(e.body, TrialFinished)]
    problems += [Problem("policy", p) for t in finished for p in _policy_problems(folder, t, checked)]
    problems += [Problem("rollouts", p) for t in finished for p in _part_problems(folder, t, checked)]
    problems += [Problem("rollouts", p) for p in _store_problems(folder, checked)]
    checked |= Counter(events=len(events), branches=len(lineage.branches), trials=len(finished))
    return VerifyReport(folder, tuple(problems), dict(checked), _head(events))


def _head(events: list[Event]) -> str:
    return events[-1].hash if events else ""


def _lineage_problems(lineage: Lineage) -> list[str]:
    wrong = [b for b in lineage.branches.values() if b.recipe_hash != b.recipe.hash]
    problems = [f"branch {b.branch}: recipe hash {b.recipe_hash} recorded, {b.recipe.hash} computed" for b in wrong]
    return [*problems, *lineage.problems, *lineage.check_factors()]


def _inside(folder: Path, path: str) -> Path | None:
    """A recorded path below the run folder, None where it leads out."""
    full = (folder / path).resolve()
    return full if full.is_relative_to(folder.resolve()) else None


def _policy_problems(folder: Path, t: TrialFinished, checked: Counter[str]) -> Iterator[str]:
    """The policy file of a finished trial against the hash in the ledger."""
    if not t.policy_path:
        return
    path = Path(t.policy_path) if Path(t.policy_path).is_absolute() else _inside(folder, t.policy_path)
    if path is None:
        yield f"trial {t.trial}: policy path {t.policy_path} leads out of the run folder"
        return
    weights = path / WEIGHTS if path.is_dir() else path
    if not weights.is_file():
        yield f"trial {t.trial}: policy {t.policy_path} is missing"
        return
    checked["policies"] += 1
    if sha256_file(weights) != t.policy_sha256:
        yield f"trial {t.trial}: {weights} does not match the SHA-256 in the ledger; it was changed after the trial"


def _part_problems(folder: Path, t: TrialFinished, checked: Counter[str]) -> Iterator[str]:
    """That the parts a finished trial names are there; their content is checked with their folder."""
    for i, part in enumerate(t.parts):
        path = _inside(folder, part)
        if path is None:
            yield f"trial {t.trial}: part {part} leads out of the run folder"
        elif not path.is_file():
            yield f"trial {t.trial}: part {part} is missing"
        else:
            checked["parts"] += 1
            # The note beside the part is compared with its content elsewhere; here with what the ledger chains.
            if i < len(t.parts_sha256) and read_checksum(path) != t.parts_sha256[i]:
                yield f"trial {t.trial}: part {part} has another checksum than the ledger recorded"


def _store_problems(folder: Path, checked: Counter[str]) -> Iterator[str]:
    """Every frame, page and checksum of every rollout store, and ids across all of them."""
    seen: dict[str, Path] = {}
    for kind in STORES:
        for store in sorted(p for p in (folder / kind).glob("*") if p.is_dir() and is_store(p)):
            problems, rows = check_folder(store, seen)
            checked["rollouts"] += rows
            yield from problems
