"""verifiers environments in an interpreter that has verifiers, which the tests' own has not.

    python -m venv vf && vf/bin/pip install -e '.[local,verifiers]' 'verifiers[ta]' pytest pytest-timeout hypothesis
    vf/bin/python -m bench.verifiers [tests] [runs] [table]

tests: those that are skipped elsewhere. runs: a whole small run (training, certificate, verify) on tasks of one turn,
and one on a game of several turns that verifiers plays. table: episodes, faults and seconds of environments with a
harness, and what each task set of the package says it needs. All three where none is named.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evotrainer import api
from evotrainer.envs import open_environment
from evotrainer.errors import EvoTrainerError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "tests" / "data" / "verifiers_packages"
TESTS = ("tests/envs/test_verifiers_env.py", "tests/envs/test_verifiers_episodes.py")
OF_THE_PACKAGE = ("openenv", "harbor", "nemo_gym", "textarena")
CALL = '<tool_call>{"name": "add_tools_add", "arguments": {"a": 20, "b": 3}}</tool_call>'
HANGMAN = {"taskset": {"game": "Hangman-v0"}, "tasks": 60, "turn_s": 300}
PLAYED: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
    ("spell-backwards", {}, ("abc", "crash")),
    ("guess-number", {}, ("1", "2", "3", "4", "5")),
    ("add-with-tool", {}, (CALL, "23")),
    ("add-with-tool", {"harness": "null"}, (CALL, "23")),
    ("textarena", HANGMAN, tuple(f"[{c}]" for c in "eaiourstlnmdp")),
)
"""Task set, options, and what is said turn by turn in each of its episodes."""


def runs() -> bool:
    """The two task files, each to its certificate; does `verify` hold?"""
    good = True
    for name in ("task.toml", "episodes.toml"):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            task = Path(place) / "task.toml"
            task.write_text((Path(__file__).with_name(name)).read_text().replace("PATH", str(PACKAGES)))
            run = api.start(task, Path(place) / "run")
            done = [t for b in run.state.branches.values() for t in b.complete]
            found = run.verify()
            lost = sum(s.errors for t in done for s in t.scores)
            scores = {t.trial: {s.split: s.score for s in t.scores} for t in done}
            steps = sum(t.steps for t in done)
            print(f"{name}: {run.closed and run.closed.reason}; {steps} steps in {len(done)} trainings, {scores}")
            print(f"{lost} faults; verify {'ok' if found.ok else found.problems}; {time.monotonic() - begun:.0f} s")
            good = good and found.ok
    return good


@contextlib.contextmanager
def words() -> Iterator[None]:
    """The word list of textarena in the place of nltk's, which is a download."""
    with tempfile.TemporaryDirectory() as place:
        at = Path(place) / "corpora" / "words"
        at.mkdir(parents=True)
        with contextlib.suppress(ModuleNotFoundError):
            lines = importlib.resources.files("textarena.envs.utils.data").joinpath("en_US.dic").read_text().split()
            found = sorted({w for x in lines if (w := x.split("/")[0]).isalpha() and w.islower() and w.isascii()})
            for name in ("en", "en-basic", "README"):
                (at / name).write_text("\n".join(w for w in found if len(w) > 3) + "\n")
        os.environ["NLTK_DATA"] = place
        yield


def table() -> None:
    """A line for each environment that is played, and for each task set of the package without options."""
    with words():
        for name, more, says in PLAYED:
            print(f"{name} {dict(more)}: {_row(name, more, says)}", flush=True)
        for name in OF_THE_PACKAGE:
            print(f"{name}: {_row(name, {}, ())}", flush=True)


def _row(name: str, more: Mapping[str, Any], says: tuple[str, ...], episodes: int = 16) -> str:
    begun = time.monotonic()
    try:
        env = open_environment({"name": f"verifiers:{name}", "path": str(PACKAGES), "harness": "chat", **more})
    except EvoTrainerError as e:
        return f"refused: {e}"
    ready = time.monotonic()
    with contextlib.closing(env):
        made = [env.reset(t, {}) for t in env.tasks("train")[:episodes]]
        turns = 0
        for text in says:
            if going := [e for e in made if not e.done]:
                env.step(going, [text] * len(going), ["stop"] * len(going))
                turns += len(going)
        scores = env.score(made)
    faults: dict[str, int] = {}
    for s in scores:
        if s.error_kind:
            faults[s.error_kind] = faults.get(s.error_kind, 0) + 1
    graded = [r for s in scores if (r := s.components["reward"]) is not None]
    mean = sum(graded) / len(graded) if graded else 0.0
    return (
        f"{len(made)} episodes, {turns} turns, faults {faults or 'none'}, mean reward {mean:.2f}; "
        f"opened in {ready - begun:.0f} s, played in {time.monotonic() - ready:.0f} s"
    )


def main(*parts: str) -> int:
    """Print what was run and found; 0 where all of it held."""
    print(f"verifiers {version('verifiers')}")
    good = True
    if "tests" in parts or not parts:
        tests = [sys.executable, "-m", "pytest", "-n", "0", "-q", *TESTS]
        tested = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"tests: exit code {tested.returncode}; {tested.stdout.splitlines()[-1:]}")
        good = not tested.returncode
    if "runs" in parts or not parts:
        good = runs() and good
    if "table" in parts or not parts:
        table()
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
