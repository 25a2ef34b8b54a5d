"""Faults that tests must notice: `python -m bench.mutations [--room judge] [--name NAME] [--jobs 1]`.

Reads faults.toml. Copies src/evotrainer to a temporary folder, puts one fault into it, runs the fault's tests against
the copy with `-x -n 0`, and takes it out again; the working tree is never edited. A test that noticed a fault is run
once more without it: one that fails anyway is left out, and the others are asked. Writes results.md next to this file
where all faults were tried. Exit code 1 where a fault was not noticed, or is out of date: its text is not there exactly
once any more, or its tests are gone.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
ROOMS = {"records": "ledger", "algorithm": "kernel", "trainers": "kernel"}
"""Where a room is named otherwise than its folder."""
MOST_S = 1200
"""Seconds after which a fault's tests count as hanging."""


@dataclass(frozen=True)
class Fault:
    """A row of faults.toml; `file` below src/evotrainer, `tests` below tests."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: Sequence[str]

    @property
    def room(self) -> str:
        folder = self.file.partition("/")[0]
        return ROOMS.get(folder, folder)

    @property
    def there(self) -> list[str]:
        """Its test files that exist."""
        return [f"tests/{t}" for t in self.tests if (ROOT / "tests" / t).is_file()]

    def stale(self) -> str:
        """Why it cannot be tried; empty where it can."""
        path = ROOT / "src/evotrainer" / self.file
        found = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if found != 1:
            return f"its text is {found} times in {self.file}"
        return "" if self.there else "its tests are gone"


@dataclass(frozen=True)
class Outcome:
    """What became of a fault."""

    fault: Fault
    verdict: str
    """caught, NOT caught, or out of date."""
    by: str = ""
    """The test that failed first, or why nothing was tried."""
    seconds: float = field(default=0.0, compare=False)


def faults() -> list[Fault]:
    return [Fault(**row) for row in tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))["fault"]]


def copy_of_source(folder: Path) -> Path:
    """A compiled copy of src, whose files are compiled again where their content changes, not their time."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=mode)
    return folder / "src"


def pytest(source: Path, tests: Sequence[str], *options: str) -> tuple[int, str]:
    """(exit code, what was printed) of tests that import evotrainer from `source`; 124 where they hang."""
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-rfE",
        "--tb=no",
        "-o",
        "timeout=0",
        *options,
        *tests,
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        try:
            said, _ = running.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, 9)
            return 124, "hangs"
    return running.returncode, said


def tried(fault: Fault, source: Path, sound: dict[str, bool]) -> Outcome:
    """The first of its tests that fails with the fault in the copy and passes without it; the copy is as before
    afterwards. `sound`: test -> does it pass without any fault? It is filled."""
    path, began = source / "evotrainer" / fault.file, time.monotonic()
    whole = path.read_text(encoding="utf-8")
    broken: list[str] = []
    while True:
        path.write_text(whole.replace(fault.old, fault.new), encoding="utf-8")
        try:
            code, said = pytest(source, fault.there, "-x", *(f"--deselect={x}" for x in broken))
        finally:
            path.write_text(whole, encoding="utf-8")
        took = time.monotonic() - began
        if code == 124:
            return Outcome(fault, "caught", "hangs", took)
        if code in (0, 5):  # 5: all were left out
            left = f"; fails without the fault: {', '.join(broken)}" if broken else ""
            return Outcome(fault, "NOT caught", ", ".join(fault.there) + left, took)
        failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+\.py[^\s\[]*)", said, re.MULTILINE)
        if code != 1 or failed is None or failed[1] in broken:
            return Outcome(fault, "out of date", f"pytest ended with {code}: {said.strip()[-200:]}", took)
        if failed[1] not in sound:
            sound[failed[1]] = pytest(source, [failed[1]])[0] == 0
        if sound[failed[1]]:
            return Outcome(fault, "caught", failed[1], took)
        broken.append(failed[1])


def report(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The table."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    count = {v: sum(o.verdict == v for o in outcomes) for v in ("caught", "NOT caught", "out of date")}
    head = (
        f"`python -m bench.mutations`, {date.today()}, commit {git.stdout.strip()}, {os.cpu_count()} cores, "
        f"{seconds / 60:.0f} min. {', '.join(f'{n} {v}' for v, n in count.items())}."
    )
    rows = [
        f"| {o.fault.room} | {o.fault.name} | {o.fault.breaks} | {o.verdict} | {o.by.removeprefix('tests/')} |"
        for o in outcomes
    ]
    return "\n".join(
        ["# Faults that tests notice", "", head, "", "| room | fault | it breaks | | by |", "|---" * 5 + "|", *rows, ""]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--room", help="judge, ledger, kernel, sandbox or verify")
    parser.add_argument("--name", action="append", help="a fault by its name; may be given several times")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    every = faults()
    chosen = [f for f in every if given.room in (None, f.room) and (not given.name or f.name in given.name)]
    if not chosen:
        parser.error(f"no such fault; rooms: {', '.join(dict.fromkeys(f.room for f in every))}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        sound: dict[str, bool] = {}
        for i in range(given.jobs):
            copies.put(copy_of_source(Path(folder) / str(i)))

        def one(fault: Fault) -> Outcome:
            if why := fault.stale():
                outcome = Outcome(fault, "out of date", why)
            else:
                source = copies.get()
                try:
                    outcome = tried(fault, source, sound)
                finally:
                    copies.put(source)
            print(f"{outcome.verdict:12} {fault.name:34} {outcome.seconds:5.0f} s  {outcome.by}", flush=True)
            return outcome

        with ThreadPoolExecutor(given.jobs) as pool:
            outcomes = list(pool.map(one, chosen))
    text = report(outcomes, time.monotonic() - began)
    print(text)
    if len(chosen) == len(every):
        (HERE / "results.md").write_text(text, encoding="utf-8")
    return int(any(o.verdict != "caught" for o in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
