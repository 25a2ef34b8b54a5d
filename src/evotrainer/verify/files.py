"""What lies on the disk against what the ledger vouches for: task file, policies, trials' files, rollouts.

Every check yields the sentences of what does not hold. Files that the ledger does not name, where it names all there
should be, are found as well: rollouts added to the recorded ones would be read like them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from pydantic_core import from_json, to_json

from evotrainer.errors import StoreError
from evotrainer.projections.environment_files import CODE, KEPT, copies_of
from evotrainer.records.chain import Event
from evotrainer.records.durable import sha256_file
from evotrainer.records.events import LibraryOpened, RunOpened, SkillDistilled, TrialFinished
from evotrainer.records.frames import read_tail, schema_frame
from evotrainer.records.reading import LOCK, TAIL, check_folder, is_store, read_checksum, stored_parts
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.weights import weight_files, weights_sha256

"""Subfolders of a run that hold one rollout store per trial."""
TRIALS = "trials"
RESULT = "result.json"
MADE = {
    *SealedSplits.STORES,
    TRIALS,
    KEPT,
    "task.toml",
    "report.html",
    "skills",
    "library",
    "seat",
    "gates",
    "tracking",
    "calibration",
}
MADE |= {"executor.jsonl"}
BEGINNINGS = ("ledger.", ".leaving-", ".evotrainer-")
"""What commands make at the top of a run folder."""


def task_file(folder: Path, run: RunOpened) -> Iterator[str]:
    """The task file, byte for byte."""
    path = folder / "task.toml"
    if not path.is_file():
        yield "task.toml is missing"
    elif sha256_file(path) != run.task_sha256:
        yield "task.toml is not the file the run began with; restore a copy"


def changed_inputs(run: RunOpened, corrected: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """What the run was built upon and does not hold itself, as far as it changed since: the run's record stands.
    `corrected`: files that a resume took up since (`Resumed.files`)."""
    if sha := run.base_policy.get("sha256"):
        base = Path(run.base_policy.get("path", ""))
        now = weights_sha256(base)
        if now is None:
            yield f"the weights in {base}, which the run was built upon, are not here: they could not be compared"
        elif now != sha:
            yield f"{_weights(base)} is not what the run was built upon any more"
    for name, sha in {**run.environment.get("files", {}), **corrected}.items():
        path = Path(name)
        if not path.is_file():
            yield f"{name}, which the run was built upon, is not here: it could not be compared"
        elif sha256_file(path) != sha:
            yield f"{name} is not what the run was built upon any more"


def copies(folder: Path, events: list[Event], checked: Counter[str]) -> Iterator[str]:
    """The run's copies of the environment's Python files, byte for byte, and nothing beside them."""
    named = copies_of(events)
    # copies are made behind the event that names them: a kill between the two leaves none, and where the file was
    # corrected once more before anything rested on it, there will be none
    rested = [e for e, after in pairwise(events) if after.kind != "resumed"]
    due = copies_of(rested)
    for place, sha in named.items():
        if not (folder / place).is_file():
            if place in due:
                yield f"{place}, the run's copy of a file that it was built upon, is missing; restore it"
            continue
        checked["files"] += 1
        if sha256_file(folder / place) != sha:
            yield f"{place} does not match the SHA-256 in the ledger; it was changed after the run kept it"
    for path in sorted(p for p in (folder / KEPT).rglob("*") if p.is_file()):
        if path.suffix == CODE and (place := path.relative_to(folder).as_posix()) not in named:
            yield f"{place} is not in the ledger; it was added"


def unknown_files(folder: Path) -> Iterator[str]:
    """What lies at the top of a run folder and no part of a run makes."""
    for path in sorted(folder.iterdir()):
        if path.name not in MADE and not path.name.startswith(BEGINNINGS):
            yield f"{path.name} is no part of a run: nothing reads it, and it is not checked"


def policy(folder: Path, t: TrialFinished, checked: Counter[str]) -> Iterator[str]:
    """The policy of a finished trial against the hash in the ledger."""
    if not t.policy_path:
        return
    path = Path(t.policy_path) if Path(t.policy_path).is_absolute() else path_inside(folder, t.policy_path)
    if path is None:
        yield f"trial {t.trial}: policy path {t.policy_path} leads out of the run folder"
        return
    found = weights_sha256(path) if path.is_dir() else None
    if found is None:
        yield f"trial {t.trial}: policy {t.policy_path} is missing"
        return
    checked["policies"] += 1
    if found != t.policy_sha256:
        yield (
            f"trial {t.trial}: {_weights(path)} does not match the SHA-256 in the ledger; "
            "it was changed after the trial"
        )
    if t.policy_path.startswith(f"{TRIALS}/{t.trial}/") and t.files:
        yield from added(folder, t, path)


def _weights(policy: Path) -> Path:
    """The file that holds a policy's weights, or the folder of several."""
    files = weight_files(policy)
    return files[0] if len(files) == 1 else policy


def added(folder: Path, t: TrialFinished, below: Path) -> Iterator[str]:
    """Files below a folder whose contents the trial named whole, which it did not name."""
    folder = folder.resolve()
    for p in sorted(below.resolve().rglob("*")):
        name = str(p.relative_to(folder)) if p.is_relative_to(folder) else str(p)
        if p.is_file() and name not in t.files and p.name != LOCK:
            yield f"trial {t.trial}: {name} is not in the ledger; it was added after the trial"


def named_files(folder: Path, t: TrialFinished, checked: Counter[str]) -> Iterator[str]:
    """Every other file the trial left, byte for byte, and its `result.json` against the event."""
    for name, sha in t.files.items():
        path = path_inside(folder, name)
        if path is None:
            yield f"trial {t.trial}: {name} leads out of the run folder"
        elif not path.is_file():
            yield f"trial {t.trial}: {name} is missing"
        else:
            checked["files"] += 1
            if sha256_file(path) != sha:
                yield f"trial {t.trial}: {name} does not match the SHA-256 in the ledger; restore a copy"
    yield from result_file(folder, t)


def result_file(folder: Path, t: TrialFinished) -> Iterator[str]:
    """`result.json` says what the event says, in the very bytes that were written; less the price, which the run
    adds to the event and `verify.trials.priced` computes again."""
    path = folder / TRIALS / t.trial / RESULT
    if not path.is_file():
        if t.files:
            yield f"trial {t.trial}: {RESULT} is missing"
        return
    try:
        data = read_bytes(path)
        due = t.model_copy(update={"usd": None})
        same = SealedSplits.result(TrialFinished.model_validate_json(data)) == due and to_json(from_json(data)) == data
    except (ValueError, OSError):
        same = False
    if not same:
        yield f"trial {t.trial}: {RESULT} does not say what the ledger says; restore a copy"


def parts(folder: Path, t: TrialFinished, checked: Counter[str]) -> Iterator[str]:
    """That a finished trial's stores hold the parts it named, and nothing else; their content is checked by folder."""
    for i, part in enumerate(t.parts):
        path = path_inside(folder, part)
        if path is None:
            yield f"trial {t.trial}: part {part} leads out of the run folder"
        elif not path.is_file():
            yield f"trial {t.trial}: part {part} is missing"
        else:
            checked["parts"] += 1
            # The note next to the part is compared with its content elsewhere; here with what the ledger chains.
            if i < len(t.parts_sha256) and read_checksum(path) != t.parts_sha256[i]:
                yield f"trial {t.trial}: part {part} has another checksum than the ledger recorded"
    for store in (folder / kind / t.trial for kind in SealedSplits.STORES):
        if t.status == "failed":
            yield from added(folder, t, store) if t.files and store.is_dir() else ()
            continue
        for path in stored_parts(store):
            if (name := str(path.relative_to(folder))) not in t.parts:
                yield f"trial {t.trial}: part {name} is not in the ledger; it was added after the trial"
        if (store / TAIL).is_file() and not _empty(store / TAIL):
            yield f"trial {t.trial}: {store.relative_to(folder) / TAIL} is not empty, as a finished trial leaves it"


def _empty(tail: Path) -> bool:
    """Whether a tail holds its schema and nothing else, all of it sound."""
    found = read_tail(tail)
    whole = (
        not found.damaged and not found.torn and len(found.frames) == 1 and found.data.startswith(schema_frame()[:4])
    )
    if whole:
        try:
            return not list(found.batches())
        except StoreError:
            return False
    return not found.data


def stores(folder: Path, checked: Counter[str]) -> Iterator[str]:
    """Every frame, page and checksum of every rollout store, and ids across all of them."""
    seen: dict[str, Path] = {}
    for kind in SealedSplits.STORES:
        for store in sorted(p for p in (folder / kind).glob("*") if p.is_dir() and is_store(p)):
            problems, rows = check_folder(store, seen)
            checked["rollouts"] += rows
            yield from problems


def unnamed_trials(folder: Path, trials: Container[str]) -> Iterator[str]:
    """Folders and rollout stores of no known trial."""
    found = [p for kind in SealedSplits.STORES for p in (folder / kind).glob("*") if p.is_dir() and is_store(p)]
    for left in sorted({*found, *(folder / TRIALS).glob("*/")}):
        if left.name not in trials:
            yield f"{left.relative_to(folder)}: the ledger knows no trial of this name"


def unnamed_skills(folder: Path, events: Iterable[Event]) -> Iterator[str]:
    """Skills that lie in the run and that no event speaks of."""
    named = {("skills", e.body.skill) for e in events if isinstance(e.body, SkillDistilled)}
    named |= {("library", s) for e in events if isinstance(e.body, LibraryOpened) for s in e.body.skills}
    for kind in ("skills", "library"):
        for left in sorted((folder / kind).glob("*/")):
            if (kind, left.name) not in named:
                yield f"{kind}/{left.name} is not in the ledger; it was added"


def path_inside(folder: Path, path: str) -> Path | None:
    """A recorded path below the run folder, None where it leads out."""
    full = (folder / path).resolve()
    return full if full.is_relative_to(folder.resolve()) else None


def last_hash(events: list[Event]) -> str:
    """Hash of the last event, empty without one."""
    return events[-1].hash if events else ""
