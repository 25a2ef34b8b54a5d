"""The contract of importers: others' files in, `Rollout`s and named skips out.

An importer reads one format. It never guesses a reward, never turns an infrastructure fault into reward 0, and never
drops a record silently: what it cannot read becomes a `Skipped` with its place and cause, and reading goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from evotrainer.records.reading import is_store
from evotrainer.records.rollout import Rollout

HEAD = 65536
"""Bytes of a file that `Source.head` offers for recognition."""

Fault = Literal["timeout", "container", "judge", "model_api", "cancelled", "masked", "other"]
"""Values of `Rollout.error_kind` given by importers. timeout: of the infrastructure, not a program's own; container:
sandbox, image, environment; judge: the grader or judge model did not answer; model_api: the policy's server failed;
cancelled: the run or sample was stopped; masked: the producer excludes it (`mask_sample`) without saying why; other:
the producer reports an error of another class."""


@dataclass(frozen=True)
class Source:
    """One file offered for recognition."""

    path: Path

    @cached_property
    def head(self) -> bytes:
        """Its first 64 KiB, of a file compressed with gzip those of what is packed in it; empty for a folder."""
        from evotrainer.importers.lenient_json import beginning

        return beginning(self.path, HEAD) if self.path.is_file() else b""

    @cached_property
    def first(self) -> Any:
        """The first JSON value of the file: the first JSON object among its first 20 non-empty lines (so that a broken
        first line does not hide the rest), else the whole file where it is JSON, else its first line where that parses,
        else None. Never raises."""
        from evotrainer.importers.lenient_json import first_value

        return first_value(self.path, self.head)

    @property
    def suffix(self) -> str:
        """Lower-case file name suffixes, e.g. `.traj.json`."""
        return "".join(self.path.suffixes[-2:]).lower()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be read, or that is known to be no rollout."""

    where: str
    """File, and line, sample or member in it."""
    reason: str


class Importer(Protocol):
    """Reads one format. Instances hold no state between files."""

    @property
    def name(self) -> str:
        """Short name, as in `--format NAME`."""
        ...

    @property
    def about(self) -> str:
        """One line for the docs: what writes this format, and which fields are read."""
        ...

    def recognises(self, source: Source) -> bool:
        """Is this file of the format? Cheap, exact rather than hopeful; never raises."""
        ...

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """Every record of a file, in order. Raises StoreError only where the file as a whole cannot be opened."""
        ...


class LogFormat:
    """Base of the importers that are shipped: what a format says of itself besides its records."""

    asked = 100
    """Place among those that are asked whether a file is theirs, ascending; general forms come last."""
    own_ids = False
    """Ids and groups hash what the record says of itself, not only the name of its file."""
    names: Literal["", "id", "group"] = ""
    """A record may have an id of its own, or an id and a group: in whatever file it lies, it is one rollout."""
    by_lines = False
    """Its files can be cut between two lines."""
    joined = False
    """A record may have its verdict in another file (`results`)."""

    def one_reading(self, path: Path) -> Path | None:
        """The folder whose files are read as one with this file; None where the file is a reading of its own."""
        return None


class AttemptFile(LogFormat):
    """Of formats with a file for each attempt, in the folder of its run."""

    own_ids = True

    def one_reading(self, path: Path) -> Path | None:
        return run_folder(path)


PLAIN = LogFormat()


def format_of(importer: Importer) -> LogFormat:
    """What an importer says of its format; of a user's own that says nothing, the defaults."""
    return importer if isinstance(importer, LogFormat) else PLAIN


def run_folder(path: Path) -> Path | None:
    """Of a file that holds one attempt, `<run>/<instance>.traj` or `<run>/<instance>/<instance>.traj.json`: the run."""
    if path.is_dir():
        return None
    folder = path.parent
    return folder.parent if path.name.split(".", 1)[0] == folder.name.split(".", 1)[0] else folder


def imported_id(path: Path, record: str | int) -> str:
    """Id of an imported rollout: 32 hex digits over file name and place, so that a second import is a no-op."""
    return hashlib.blake2b(
        # the unit separator keeps ("a", "bc") and ("ab", "c") apart; the name without its folder, so a moved file stays
        # the same
        f"import\x1f{path.name}\x1f{record}".encode("utf-8", "surrogatepass"),
        digest_size=16,
    ).hexdigest()


def given_id(format: str, name: str) -> str:
    """Id of a rollout that its producer gave a unique name: the same in whatever file, folder or order it is read."""
    return hashlib.blake2b(f"{format}\x1f{name}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def stores_of(run: Path) -> list[Path]:
    """Folders of the rollouts of a run of ours."""
    folders = (run / "rollouts").iterdir() if (run / "rollouts").is_dir() else ()
    return sorted(f for f in folders if f.is_dir() and is_store(f))


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run of ours."""
    return (folder / "ledger.db").is_file() or bool(stores_of(folder))


def task_of(prompt: str) -> str:
    """Task id of a prompt that has none: 12 hex digits over its text, so that all attempts at it share one."""
    return "task-" + hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
