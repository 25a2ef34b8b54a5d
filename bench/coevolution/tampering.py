"""Ways to tamper with a run folder, and what a reader sees of it: for the fuzz and for tests."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evotrainer.errors import EvoTrainerError
from evotrainer.records.chain import GENESIS, chain_hash
from evotrainer.records.ledger import Ledger
from evotrainer.records.reading import load
from evotrainer.records.rollout import Rollout, Turn, rollout_id
from evotrainer.records.store import RolloutStore

NOT_VOUCHED = ("log.txt", "heartbeat", "lock", "writer.lock", "ledger.db.lock", "ledger.db-shm", "error")
"""Files that no command reads as evidence: logs, locks, signs of life, SQLite's index of its write-ahead log."""

Row = list[Any]
"""seq, id, kind, time, body, prev_hash, hash"""


def vouched_files(run: Path) -> list[Path]:
    """Every file of a run that is evidence, in a fixed order; empty ones have no byte to change."""
    files = (p for p in run.rglob("*") if p.is_file() and p.name not in NOT_VOUCHED and p.stat().st_size)
    return sorted(files)


def kind_of(run: Path, path: Path) -> str:
    """A file's class in the table."""
    name = path.relative_to(run)
    if len(name.parts) == 1 or name.parts[0] not in ("trials", "rollouts", "sealed", "skills", "library"):
        return name.parts[0]
    if name.parts[0] == "trials":
        return "trials/*/" + "/".join(name.parts[2:])
    return f"{name.parts[0]}/*/" + path.suffixes[-1].lstrip(".") if path.suffixes else str(name)


def seen(run: Path) -> str:
    """Fingerprint of all that a reader gets from a run: events, rollouts, and every other vouched file byte for byte.

    SQLite's own files count by their events and stores by their rollouts; raises what the readers raise.
    """
    out = hashlib.sha256()
    with Ledger.open(run / "ledger.db", readonly=True) as ledger:
        for e in ledger.events():
            out.update(repr((e.seq, e.id, e.kind, e.time, e.body, e.hash)).encode())
    for kind in ("rollouts", "sealed"):
        for store in sorted((run / kind).glob("*/")):
            out.update(repr(load([store])).encode("utf-8", "replace"))
    for p in vouched_files(run):
        if p.name.startswith("ledger.db") or p.parent.parent.name in ("rollouts", "sealed"):
            continue
        out.update(p.read_bytes())
    return out.hexdigest()


def flip(path: Path, chance: random.Random) -> tuple[int, int]:
    """Flip one random bit, or replace a whole byte, in place: position and difference."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    change = 1 << chance.randrange(8) if chance.random() < 0.75 else chance.randrange(1, 256)
    data[at] ^= change
    path.write_bytes(data)
    return at, change


# -- the ledger by SQL -------------------------------------------------------------------------------------------------


def rows(ledger: Path) -> list[Row]:
    db = sqlite3.connect(ledger)
    try:
        return [list(r) for r in db.execute("SELECT seq,id,kind,time,body,prev_hash,hash FROM event ORDER BY seq")]
    finally:
        db.close()


def rewrite(ledger: Path, new: list[Row]) -> None:
    """Put other rows in place of all, triggers kept, and the file compacted: no trace in free pages."""
    db = sqlite3.connect(ledger, isolation_level=None)
    triggers = [r[0] for r in db.execute("SELECT sql FROM sqlite_master WHERE type='trigger'")]
    db.executescript("DROP TRIGGER event_no_update; DROP TRIGGER event_no_delete; DELETE FROM event")
    db.executemany("INSERT INTO event(seq,id,kind,time,body,prev_hash,hash) VALUES (?,?,?,?,?,?,?)", new)
    for sql in triggers:
        db.execute(sql)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("VACUUM")
    db.close()


def relink(old: list[Row]) -> list[Row]:
    """The same rows with all numbers and hashes computed again: a chain that holds."""
    out: list[Row] = []
    prev = GENESIS
    for n, (_, id, kind, time, body, _, _) in enumerate(old, 1):
        digest = chain_hash(prev, n, id, kind, time, body)
        out.append([n, id, kind, time, body, prev, digest])
        prev = digest
    return out


def note(run: Path, head: bool = True) -> None:
    """Bring the checksum of a rewritten ledger up to it, and its head file, as a thorough forger does."""
    if head:
        last = rows(run / "ledger.db")
        (run / "ledger.head").write_text(f"{len(last)} {last[-1][6] if last else GENESIS}\n")
    for left in ("ledger.db-wal", "ledger.db-shm"):
        (run / left).unlink(missing_ok=True)
    digest = hashlib.sha256((run / "ledger.db").read_bytes()).hexdigest()
    (run / "ledger.db.sha256").write_text(f"{digest}  ledger.db\n")


def edited(run: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    rewrite(run / "ledger.db", change(rows(run / "ledger.db")))


def better(row: Row) -> Row:
    """A finished trial's event with higher scores, its hash computed again."""
    body = json.loads(row[4])
    for s in body["scores"]:
        s["per_task"] = dict.fromkeys(s["per_task"], 1.0)
        s["score"] = 1.0 if s["per_task"] else s["score"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return [*row[:4], text, row[5], chain_hash(row[5], row[0], row[1], row[2], row[3], text)]


def of_kind(all_rows: list[Row], kind: str) -> int:
    """Index of the last event of a kind."""
    return max(i for i, r in enumerate(all_rows) if r[2] == kind)


def replaced(all_rows: list[Row], kind: str) -> list[Row]:
    i = of_kind(all_rows, kind)
    return [*all_rows[:i], better(all_rows[i]), *all_rows[i + 1 :]]


# -- attacks -----------------------------------------------------------------------------------------------------------

Attack = Callable[[Path], None]


def _sql(change: Callable[[list[Row]], list[Row]], thorough: bool = False) -> Attack:
    def attack(run: Path) -> None:
        edited(run, change)
        note(run, head=thorough)

    return attack


def _swap(r: list[Row]) -> list[Row]:
    i = len(r) // 2
    return [*r[:i], [r[i][0], *r[i + 1][1:]], [r[i + 1][0], *r[i][1:]], *r[i + 2 :]]


def _swap_relinked(r: list[Row]) -> list[Row]:
    i = len(r) // 2
    return relink([*r[:i], r[i + 1], r[i], *r[i + 2 :]])


def _without_middle(r: list[Row]) -> list[Row]:
    return [*r[: len(r) // 2], *r[len(r) // 2 + 1 :]]


def _invented(r: list[Row]) -> list[Row]:
    """A trial intended that nobody intended, behind the last event."""
    _, id, kind, time, body, _, _ = next(x for x in r if x[2] == "intended" and x[1].startswith("b0-"))
    trial = id.removesuffix("/intended")
    other = trial + "-invented"
    extra = [0, f"{other}/intended", kind, time, body.replace(f'"{trial}"', f'"{other}"'), "", ""]
    return relink([*r, extra])


def _older(run: Path) -> None:
    """The ledger file as it was three events ago, put back with its own checksum."""
    edited(run, lambda r: r[:-3])
    note(run, head=False)


def _free_pages(run: Path) -> None:
    """Rows deleted by SQL, the last ones' place in the file overwritten, sequence and hashes linked again."""
    db = sqlite3.connect(run / "ledger.db", isolation_level=None)
    triggers = [x[0] for x in db.execute("SELECT sql FROM sqlite_master WHERE type='trigger'")]
    db.executescript("DROP TRIGGER event_no_update; DROP TRIGGER event_no_delete; PRAGMA secure_delete=ON")
    kept = relink(_without_middle(rows(run / "ledger.db")))
    db.execute("DELETE FROM event")
    db.executemany("INSERT INTO event(seq,id,kind,time,body,prev_hash,hash) VALUES (?,?,?,?,?,?,?)", kept)
    for sql in triggers:
        db.execute(sql)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    note(run, head=False)


def _slack(run: Path) -> None:
    """Bytes between the cells of a page, where SQLite keeps nothing."""
    path = run / "ledger.db"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big") or 65536
    for page in range(len(data) // size):
        start = page * size
        head = start + (100 if page == 0 else 0)
        if data[head] not in (2, 5, 10, 13):
            continue
        cells = int.from_bytes(data[head + 3 : head + 5], "big")
        content = int.from_bytes(data[head + 5 : head + 7], "big") or 65536
        gap = head + (12 if data[head] in (2, 5) else 8) + 2 * cells
        if gap + 4 < start + content:
            data[gap + 2] ^= 0xFF
            path.write_bytes(data)
            return
    raise AssertionError("no page with room")


def _part(run: Path, kind: str = "rollouts") -> Path:
    return next(iter(sorted((run / kind).glob("*/part-*.parquet"))))


def _other_part(run: Path, at: Path) -> None:
    """A sound part of invented rollouts, checksum file and all, at a path."""
    there = run / "other"
    with RolloutStore(there) as store:
        store.append(
            [[Rollout(rollout_id("x", "b0", 0, 0, "t", k), "t", (Turn("assistant", "x"),), 1.0, k=k) for k in range(4)]]
        )
        part = store.seal()[0].path
    shutil.copy(part, at)
    text = part.with_name(part.name + ".sha256").read_text().replace(part.name, at.name)
    at.with_name(at.name + ".sha256").write_text(text)
    shutil.rmtree(there)


def _text(pattern: str, old: str, new: str) -> Attack:
    def attack(run: Path) -> None:
        path = next(iter(sorted(run.glob(pattern))))
        text = path.read_text()
        assert old in text, f"{path}: no {old!r}"
        path.write_text(text.replace(old, new, 1))

    return attack


def _tail(run: Path) -> None:
    """Rollouts put into the tail of a trial that finished."""
    with RolloutStore(_part(run).parent) as store:
        store.append([[Rollout(rollout_id("x", "b0", 0, 0, "t", 0), "t", (Turn("assistant", "x"),), 1.0)]])


def _added_store(run: Path) -> None:
    with RolloutStore(run / "rollouts" / "b7-s1") as store:
        store.append([[Rollout(rollout_id("x", "b7", 0, 0, "t", 0), "t", (Turn("assistant", "x"),), 1.0)]])


def _declare(sql: str) -> Attack:
    def attack(run: Path) -> None:
        db = sqlite3.connect(run / "ledger.db")
        db.executescript(sql)
        db.close()
        note(run)

    return attack


def _downgrade(run: Path) -> None:
    """A file that says it is of another format."""
    edited(run, lambda r: r[:-2])
    _declare("PRAGMA user_version=2")(run)
    (run / "ledger.head").unlink()


def _head(change: Callable[[list[Row]], str]) -> Attack:
    return lambda run: (run / "ledger.head").write_text(change(rows(run / "ledger.db"))) and None


def _unlink(pattern: str) -> Attack:
    return lambda run: next(iter(sorted(run.glob(pattern)))).unlink()


ATTACKS: dict[str, Attack] = {
    "an event's body edited by SQL, its own hash computed again": _sql(lambda r: replaced(r, "finished"), True),
    "two events swapped, sequence numbers kept": _sql(_swap, True),
    "two events swapped, whole chain computed again": _sql(_swap_relinked),
    "an event deleted": _sql(_without_middle, True),
    "an event deleted, rest linked again in the same pages": _free_pages,
    "the last event cut off": _sql(lambda r: r[:-1]),
    "the last 5 events cut off": _sql(lambda r: r[:-5]),
    "all events cut off": _sql(lambda r: []),
    "an older copy of the ledger put back": _older,
    "an event added behind the last, chain computed": _sql(_invented),
    "whole chain rewritten with better scores": _sql(lambda r: relink(replaced(r, "finished"))),
    "bytes changed where SQLite keeps nothing": _slack,
    "a trigger dropped": _declare("DROP TRIGGER event_no_update"),
    "a trigger disarmed under its own name": _declare(
        "DROP TRIGGER event_no_update; CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT 1; END"
    ),
    "a table added": _declare("CREATE TABLE extra(x)"),
    "two events cut off, the file passed off as another format's": _downgrade,
    "head file deleted": _unlink("ledger.head"),
    "head file set back": _head(lambda r: f"{r[-4][0]} {r[-4][6]}\n"),
    "head file set forward": _head(lambda r: f"{r[-1][0] + 1} {'0' * 64}\n"),
    "checksum of the ledger edited": _text("ledger.db.sha256", "  ", "\t "),
    "task file edited": _text("task.toml", "seed = ", "seed = 1"),
    "a part replaced by another sound one": lambda run: _other_part(run, _part(run)),
    "a gate part replaced by another sound one": lambda run: _other_part(run, _part(run, "sealed")),
    "a sound part added": lambda run: _other_part(run, _part(run).with_name("part-00009.parquet")),
    "a part deleted": lambda run: _part(run).unlink(),
    "a part truncated": lambda run: _part(run).write_bytes(_part(run).read_bytes()[:-50]),
    "a part's checksum file deleted": _unlink("rollouts/*/part-*.sha256"),
    "rollouts put into a finished trial's tail": _tail,
    "a store of no known trial added": _added_store,
    "result.json edited": _text("trials/*-s*/result.json", '"score":', '"score": '),
    "result.json deleted": _unlink("trials/*-s*/result.json"),
    "specification edited": _text("trials/*-s*/spec.json", '"train": true', '"train": false'),
    "policy weights replaced by another trial's": lambda run: (
        shutil.copy(*[sorted(run.glob("trials/*-s*/policy/model.safetensors"))[i] for i in (1, 0)]) and None
    ),
    "policy weights truncated": lambda run: _truncate(
        next(iter(sorted(run.glob("trials/*/policy/model.safetensors"))))
    ),
    "a tokenizer edited": _text("trials/*/policy/tokenizer.json", "1", "2"),
    "a file added to a policy": lambda run: (
        next(iter(sorted(run.glob("trials/*/policy")))).joinpath("adapter_config.json").write_text('{"r": 8}') and None
    ),
}
"""What a forger does -> how. All of them must be found by `evotrainer verify RUN` alone."""

FORGERIES: dict[str, Attack] = {
    "last 5 events cut off, head file and checksum rewritten": _sql(lambda r: r[:-5], True),
    "two events swapped, everything rewritten": _sql(_swap_relinked, True),
    "better scores, everything rewritten": _sql(lambda r: relink(replaced(r, "finished")), True),
}
"""Forgeries of one who can write everything and recomputes all of it:
only a head that was noted elsewhere always helps."""

ADDED = {"an event added behind the last, head file and checksum rewritten": _sql(_invented, True)}
"""What no chain can tell from an event of the run itself; with the noted head it is named as recorded since."""


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def outcome(run: Path, verify: Callable[[], tuple[str, ...]]) -> tuple[str, str]:
    """(`found`, first complaint), (`missed`, "") or (`crashed`, what): what verification makes of a run."""
    try:
        problems = verify()
    except EvoTrainerError as e:
        return "found", str(e)
    except Exception as e:  # anything else would reach the user as a traceback
        return "crashed", f"{type(e).__name__}: {e}"
    return ("found", problems[0]) if problems else ("missed", "")


def copies(run: Path, scratch: Path) -> Iterator[Path]:
    """Fresh copies of a run, one after the other in the same place."""
    while True:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(run, scratch)
        yield scratch
