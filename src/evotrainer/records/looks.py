"""The register of looks: how often runs of this user were judged on a fixed set of tasks.

One SQLite file that all runs share, apart from the cache, since emptying a cache must not renew an error budget. Two
tables, readable with `sqlite3`: `runs` (set, run, number, folder) and `looks` (set, run, what). A set is known by the
content of its tasks, a run by the commitment in its first event. Every call is one transaction, durable at its end.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evotrainer.errors import StoreError
from evotrainer.records.clock import unix_time
from evotrainer.records.storage_folders import storage_folder

VARIABLE = "EVOTRAINER_REGISTER"
"""Environment variable for task files that leave `run.looks` open: a file, or off."""
WHOLE = "drawn for it"
"""A look: the tasks were drawn for one run alone, which had their whole alpha."""
WAIT_S = 60.0
"""Longest wait for another run's transaction, each of which takes milliseconds."""
TABLES = """
create table if not exists runs (
  "set" text not null, run text not null, number integer not null, folder text not null, begun real not null,
  primary key ("set", run)
);
create table if not exists looks (
  "set" text not null, run text not null, what text not null, entered real not null,
  primary key ("set", run, what)
);
"""


def register_file(wanted: str = "") -> Path | None:
    """Where looks are counted: `wanted`, else $EVOTRAINER_REGISTER, else the user's state folder; None: nowhere."""
    return storage_folder(wanted, VARIABLE, "XDG_STATE_HOME", "looks.db")


def set_key(prompts: Iterable[str]) -> str:
    """32 hex digits of a set of tasks: of what they ask, whatever their order, ids and files are."""
    rows = sorted(hashlib.sha256(p.encode("utf-8", "surrogatepass")).hexdigest() for p in prompts)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]


def share_of(number: int) -> float:
    """Share of a set's alpha that the `number`-th run on it gets: 6/(pi^2 k^2), which sums to 1 over all k >= 1."""
    return 6 / (math.pi * number) ** 2


@dataclass(frozen=True, slots=True)
class LookCount:
    """Looks of one kind at a set, this one included. `number`: which one it is; `runs`: by so many runs."""

    number: int
    runs: int


@dataclass(frozen=True, slots=True)
class LookRegister:
    """The register in a file, made when it is first needed. StoreError where it cannot be read or written."""

    path: Path

    def next_number(self, tasks: str) -> int:
        """The number that a run would get that began now on this set; takes nothing. 0: see `join`."""
        if not self.path.exists():
            return 1
        with self._transaction() as db:
            return _free(db, tasks)

    def join(self, tasks: str, run: str, folder: Path) -> int:
        """The number of a run on a set, from 1, the lowest that no other run has; the same at every call. 0: the set
        was drawn for another run, nothing of its alpha is left.

        A run that looked at nothing and whose folder is gone gives its number back; see `leave`, too.
        """
        with self._transaction() as db:
            known = db.execute('select number from runs where "set" = ? and run = ?', (tasks, run)).fetchone()
            if known:
                return int(known[0])
            number = _free(db, tasks)
            db.execute(
                "insert into runs values (?, ?, ?, ?, ?)", (tasks, run, number, str(folder.resolve()), unix_time())
            )
            return number

    def leave(self, tasks: str, run: str) -> None:
        """Give a run's number back, where it looked at nothing."""
        with self._transaction() as db:
            db.execute(
                'delete from runs where "set" = ? and run = ? '
                'and not exists (select 1 from looks l where l."set" = runs."set" and l.run = runs.run)',
                (tasks, run),
            )

    def hold(self, tasks: str, run: str, number: int, folder: Path) -> None:
        """Take a number that a run gave back again. StoreError where another run has it meanwhile."""
        with self._transaction() as db:
            self._take(db, tasks, run, number, folder)

    def never_judged(self, tasks: str, below: int) -> list[Path]:
        """Folders of the runs that hold a number below this one on the set, and have not looked at it."""
        if not self.path.exists():
            return []
        with self._transaction() as db:
            rows = db.execute(
                'select folder from runs where "set" = ? and number > 0 and number < ? and run not in '
                '(select run from looks where "set" = ?) order by number',
                (tasks, below, tasks),
            ).fetchall()
        return [Path(folder) for (folder,) in rows]

    def enter(self, tasks: str, run: str, what: str, number: int, folder: Path) -> LookCount:
        """Note a look before it is taken; the same at every call. `what`: `judged ...`, `certified ...`: looks of the
        same first word are counted. `number`: the run's own, entered again where the register was lost.
        StoreError where another run has it meanwhile."""
        kind = what.split()[0]
        with self._transaction() as db:
            self._take(db, tasks, run, number, folder)
            db.execute("insert or ignore into looks values (?, ?, ?, ?)", (tasks, run, what, unix_time()))
            rows = db.execute('select run, what from looks where "set" = ? order by rowid', (tasks,)).fetchall()
        same = [(r, w) for r, w in rows if w.split()[0] == kind]
        upto = same[: same.index((run, what)) + 1]
        return LookCount(len(upto), len({r for r, _ in upto}))

    def _take(self, db: sqlite3.Connection, tasks: str, run: str, number: int, folder: Path) -> None:
        other = db.execute(
            'select run from runs where "set" = ? and number = ? and run != ?', (tasks, number, run)
        ).fetchone()
        if number and other:
            raise StoreError(
                f"register {self.path}: another run has this run's number {number} on these tasks, since this one "
                "stood still with nothing trained, or its folder was moved, before it looked at anything; start a new "
                "run (trainings that have finished come from the cache)"
            )
        row = (tasks, run, number, str(folder.resolve()), unix_time())
        db.execute(
            'insert into runs values (?, ?, ?, ?, ?) on conflict("set", run) do update set folder = excluded.folder',
            row,
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)) as db:
                db.execute("pragma synchronous = full")
                db.execute("begin immediate")
                for statement in TABLES.split(";"):
                    db.execute(statement)
                yield db
                db.execute("commit")
            self.path.chmod(0o600)
        except (OSError, sqlite3.Error) as e:
            why = getattr(e, "strerror", None) or e
            raise StoreError(
                f"register of looks {self.path} cannot be used ({why}); make it writable, set run.looks to another "
                "file, or to off: then verdicts and certificates say that looks of other runs were not counted"
            ) from None


def _free(db: sqlite3.Connection, tasks: str) -> int:
    """The lowest number that no run has, once those that are gone and never looked are left out; see `join`."""
    if db.execute('select 1 from looks where "set" = ? and what = ?', (tasks, WHOLE)).fetchone():
        return 0
    rows = db.execute(
        'select r.run, r.number, r.folder, (select count(*) from looks l where l."set" = r."set" and l.run = r.run) '
        'from runs r where r."set" = ?',
        (tasks,),
    ).fetchall()
    gone = [run for run, _, folder, looks in rows if not looks and not (Path(folder) / "task.toml").is_file()]
    for run in gone:
        db.execute('delete from runs where "set" = ? and run = ?', (tasks, run))
    taken = {number for run, number, _, _ in rows if run not in gone}
    return next(n for n in range(1, len(taken) + 2) if n not in taken)
