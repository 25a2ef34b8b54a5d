"""Tampering with a finished run: `python -m bench.coevolution.fuzz [RUN] [--flips N] [--seed S] [--out FILE]`.

1,000 random bits or bytes are flipped, one at a time, in every file that a run's ledger vouches for, 60 files are cut
short, and every attack of `tampering.py` is tried. After each, `verify` is asked. What it does not find must leave
every value that a reader gets the same. Without RUN a small one is made first (a minute). The table is written by this
script.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.coevolution import tampering
from evotrainer import __version__, api
from evotrainer.cli.init import init
from evotrainer.records.events import Resumed
from evotrainer.records.ledger import Ledger
from evotrainer.verify.chain_and_files import VerifyReport

SMALL = (
    "policy.warm_start.steps=120",
    "recipe.steps=2",
    "recipe.prompts_per_step=4",
    "recipe.group_size=4",
    "evaluation.search_tasks=12",
    "evaluation.gate_tasks=20",
    "evaluation.cert_tasks=20",
    "evaluation.search_attempts=1",
    "evaluation.gate_attempts=1",
    "evaluation.cert_attempts=1",
    "run.rounds=1",
    "run.branches=1",
    "run.seeds=[1,2]",
    "run.certify_seeds=[101]",
    "judge.min_seeds=2",
    "judge.max_seeds=2",
)
"""A run with every kind of file and as few trials as there can be: each change costs a whole verification."""

KILLED = "killed while writing"
"""A copy whose writer never closed: events wait in SQLite's write-ahead log."""


@dataclass
class Tally:
    """Outcomes of one class of files."""

    found: int = 0
    same: int = 0
    """Not found, and no reader sees a difference."""
    missed: int = 0
    """Not found, and a reader sees another value."""
    crashed: int = 0
    files: set[str] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)

    def add(self, outcome: str, file: str, example: str) -> None:
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.files.add(file)
        if outcome != "found":
            self.examples.append(example)


def small_run(folder: Path) -> Path:
    """The task that `evotrainer init` writes, run at its smallest."""
    init(folder / "letters")
    run = api.start(folder / "letters" / "task.toml", folder / "small", SMALL)
    run.report()
    return run.folder


def problems(run: Path, head: str = "") -> tuple[str, ...]:
    """What `evotrainer verify` says of a run."""
    report: VerifyReport = api.Run(run).verify(head)
    return tuple(f"{p.area}: {p.message}" for p in report.problems)


def judge(run: Path, before: str, tally: Tally, file: str, example: str) -> None:
    """Ask `verify`, and readers where it is silent."""
    outcome, why = tampering.outcome(run, lambda: problems(run))
    if outcome == "missed":
        try:
            outcome = "same" if tampering.seen(run) == before else "missed"
        except Exception as e:  # a reader stumbles where verify was silent
            outcome, why = "missed", f"{type(e).__name__}: {e}"
    tally.add(outcome, file, f"{example} {why}".strip())


def choose(run: Path, chance: random.Random) -> Path:
    """A file: half the time any kind equally often, half the time the ledger or a rollout store."""
    files = tampering.vouched_files(run)
    kinds = sorted({tampering.kind_of(run, p) for p in files})
    if chance.random() < 0.5:
        kinds = [k for k in kinds if k.startswith(("ledger", "rollouts", "sealed"))]
    kind = chance.choice(kinds)
    return chance.choice([p for p in files if tampering.kind_of(run, p) == kind])


def flips(run: Path, n: int, chance: random.Random, tallies: dict[str, Tally], label: str = "", only: str = "") -> None:
    """Flip one bit or byte at a time in a copy, ask, put the file back."""
    before = tampering.seen(run)
    for i in range(n):
        path = run / only if only else choose(run, chance)
        good = path.read_bytes()
        at, change = tampering.flip(path, chance)
        kind = label or tampering.kind_of(run, path)
        file = str(path.relative_to(run))
        judge(run, before, tallies.setdefault(kind, Tally()), file, f"{file}: byte {at} xor {change:#04x}")
        restore(run, path, good)
        if not i % 50:
            print(f"{i} of {n}", file=sys.stderr)


def cuts(run: Path, n: int, chance: random.Random, tallies: dict[str, Tally]) -> None:
    """Cut files short at random places."""
    before = tampering.seen(run)
    for _ in range(n):
        path = choose(run, chance)
        good = path.read_bytes()
        keep = chance.randrange(len(good))
        path.write_bytes(good[:keep])
        file = str(path.relative_to(run))
        judge(run, before, tallies.setdefault("any file, cut short", Tally()), file, f"{file}: {keep} bytes kept")
        restore(run, path, good)


def restore(run: Path, path: Path, good: bytes) -> None:
    """The file as it was; readers may have left SQLite's helpers beside a ledger."""
    path.write_bytes(good)
    (run / "ledger.db-shm").unlink(missing_ok=True)
    wal = run / "ledger.db-wal"
    if path != wal and wal.exists() and not wal.stat().st_size:
        wal.unlink()


def killed_copy(run: Path, to: Path) -> Path:
    """A copy as a killed writer leaves it: the last events only in the write-ahead log, no checksum of the ledger."""
    shutil.copytree(run, to / "open")
    ledger = Ledger.open(to / "open" / "ledger.db")
    for n in range(1, 6):
        ledger.append("resumed", f"resumed/{n}", Resumed(n=n))
    shutil.copytree(to / "open", to / "killed")
    ledger.close()
    for name in ("ledger.db-shm",):
        (to / "killed" / name).unlink(missing_ok=True)
    return to / "killed"


def attacks(run: Path, scratch: Path, head: str) -> list[tuple[str, str, str, str]]:
    """(attack, outcome by `verify` alone, outcome with the head noted before, first complaint)."""
    out = []
    fresh = tampering.copies(run, scratch)
    for name, attack in {**tampering.ATTACKS, **tampering.FORGERIES, **tampering.ADDED}.items():
        copy = next(fresh)
        attack(copy)
        alone, why = tampering.outcome(copy, lambda copy=copy: problems(copy))  # type: ignore[misc]
        noted, later = tampering.outcome(copy, lambda copy=copy: problems(copy, head))  # type: ignore[misc]
        told = [n for n in api.Run(copy).verify(head).notes if "recorded since" in n] if noted == "missed" else []
        noted, later = ("told", told[0]) if told else (noted, later)
        out.append((name, alone, noted, (why or later).replace(str(copy), "RUN").replace("|", "/")))
    return out


def table(n: int, seed: int, tallies: dict[str, Tally], tried: list[tuple[str, str, str, str]], cpu_s: float) -> str:
    """The results in Markdown."""
    total: Counter[str] = Counter()
    lines = [
        "# Tampering with a run: what `evotrainer verify` finds",
        "",
        f"Written by `python -m bench.coevolution.fuzz RUN --flips {n} --seed {seed}` with evotrainer {__version__}; "
        f"{cpu_s:.0f} CPU-s.",
        "",
        "## Random changes, one at a time",
        "",
        "A bit (3 of 4) or a byte is flipped at a random place of a random file. `same`: not found, and events, "
        "rollouts and every",
        "other vouched file read as before. `missed`: not found, and a reader sees another value: must be 0. "
        "`crashed`: verify ended",
        "with a traceback: must be 0.",
        "",
        "| file | files hit | changes | found | same | missed | crashed |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind, t in sorted(tallies.items()):
        changes = t.found + t.same + t.missed + t.crashed
        total.update(
            files=len(t.files), changes=changes, found=t.found, same=t.same, missed=t.missed, crashed=t.crashed
        )
        lines.append(f"| {kind} | {len(t.files)} | {changes} | {t.found} | {t.same} | {t.missed} | {t.crashed} |")
    sums = " | ".join(str(total[k]) for k in ("changes", "found", "same", "missed", "crashed"))
    lines += [f"| **all** | | {sums} |", ""]
    silent = [x for t in tallies.values() for x in t.examples]
    lines += [f"- {x}" for x in silent[:20]] + ([""] if silent else [])
    lines += ["## Attacks", "", "| what was done | `verify` | `verify --head` | first complaint |", "|---|---|---|---|"]
    lines += [f"| {name} | {alone} | {noted} | {why[:150]} |" for name, alone, noted, why in tried]
    missed = [name for name, alone, _, _ in tried if alone != "found" and name in tampering.ATTACKS]
    late = [name for name, _, noted, _ in tried if noted != "found" and name in tampering.FORGERIES]
    lines += ["", f"Attacks that `verify` alone missed: {', '.join(missed) or 'none'}."]
    lines += [f"Forgeries with everything rewritten that the noted head missed: {', '.join(late) or 'none'}.", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, nargs="?", help="a finished run folder; it is copied, not changed")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("fuzz.md"))
    a = parser.parse_args()
    chance, tallies = random.Random(a.seed), dict[str, Tally]()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        run: Path = a.run or small_run(scratch)
        started, copy = time.process_time(), scratch / "run"
        shutil.copytree(run, copy)
        if found := problems(copy):
            print(f"{run} does not verify before anything is done to it: {found[0]}", file=sys.stderr)
            return 2
        with Ledger.open(copy / "ledger.db", readonly=True) as ledger:
            head = ledger.head[1]
        waiting = max(1, a.flips // 20)
        flips(copy, a.flips - waiting, chance, tallies)
        killed = killed_copy(run, scratch)
        flips(killed, waiting, chance, tallies, f"ledger.db-wal ({KILLED})", "ledger.db-wal")
        cuts(copy, max(1, a.flips // 16), chance, tallies)
        tried = attacks(run, scratch / "attacked", head)
        text = table(a.flips, a.seed, tallies, tried, time.process_time() - started)
    a.out.write_text(text)
    print(text)
    bad = sum(t.missed + t.crashed for t in tallies.values())
    return 1 if bad or any(alone != "found" for name, alone, _, _ in tried if name in tampering.ATTACKS) else 0


if __name__ == "__main__":
    raise SystemExit(main())
