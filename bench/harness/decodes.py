"""What the harness costs a run: rollouts made objects, rollouts read for traits, CPU-seconds.

A finished run is walked again with its trials' results as they are recorded:
`python -m bench.harness.decodes RUN [NEW_FOLDER]`. It runs over older versions as well (`PYTHONPATH=OTHER/src`), which
is why it looks for its functions by several names.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HARNESS = {
    "traits": ("extract",),
    "columns.extract": ("extract",),
    "chunk": ("_turns",),
    "columns.chunk": ("turns_at",),
    "gaps": ("find_gap",),
    "mining": ("mine",),
    "admission": ("admit",),
    "gained": ("gained",),
    "backtest": ("backtest",),
    "columns.source": ("stored",),
}
"""Modules below `evotrainer.harness` (and below its `whatif` and `evolving`), and what is counted or timed of them."""


READER = "harness.columns.rollout_reader"


class Counts:
    """What happened since the start, by round and kind."""

    def __init__(self) -> None:
        self.round, self.champion = 0, ""
        self.rows: Counter[tuple[int, str]] = Counter()
        self.cpu = 0.0
        self._depth = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The CPU-seconds of the outermost call count."""

        def wrapped(*args: Any, **more: Any) -> Any:
            self._depth += 1
            began = time.process_time()
            try:
                return function(*args, **more)
            finally:
                self._depth -= 1
                self.cpu += 0.0 if self._depth else time.process_time() - began

        return wrapped

    def decoded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Rows that become `Rollout` objects; of the champion's search rollouts apart."""

        def wrapped(batch: Any) -> Any:
            self.rows[self.round, "objects"] += batch.num_rows
            told = zip(batch.column("branch").to_pylist(), batch.column("split").to_pylist(), strict=True)
            self.rows[self.round, "champion"] += sum(x == (self.champion, "search") for x in told)
            return function(batch)

        return self.timed(wrapped)

    def counted(self, function: Callable[..., Any], kind: str, rows: Callable[..., int]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            self.rows[self.round, kind] += rows(*args, **more)
            return function(*args, **more)

        return self.timed(wrapped)


def modules() -> Iterator[Any]:
    """All of the package that is needed here and exists in this version."""
    places = [f"harness.{where}{name}" for name in HARNESS for where in ("", "whatif.", "evolving.")]
    for name in (
        "api",
        "harness",
        "records.arrow_schema",
        "records.reading",
        READER,
        "executors.health",
        *places,
    ):
        try:
            yield importlib.import_module(f"evotrainer.{name}")
        except ModuleNotFoundError:
            continue


def watch(counts: Counts) -> None:
    """Put counters in the place of the functions, wherever they are known."""
    found = {m.__name__.removeprefix("evotrainer."): m for m in modules()}
    instead: dict[int, Any] = {}

    def put(module: str, name: str, made: Callable[[Any], Any]) -> None:
        if module in found and hasattr(found[module], name):
            f = getattr(found[module], name)
            instead[id(f)] = (f, made(f))

    put("records.arrow_schema", "decode", counts.decoded)
    put("records.reading", "load", counts.timed)
    for place, names in HARNESS.items():
        for where in ("", "whatif.", "evolving."):
            for name in names:
                if name == "extract":
                    put(f"harness.{place}", name, lambda f: counts.counted(f, "traits", lambda chunk, *_: chunk.n))
                elif name in ("_turns", "turns_at"):
                    put(f"harness.{place}", name, lambda f: counts.counted(f, "turns", lambda _, rows: len(rows)))
                else:
                    put(f"harness.{where}{place}", name, counts.timed)
    for m in [m for n, m in sys.modules.items() if n.startswith("evotrainer")]:
        for name, value in list(vars(m).items()):
            if id(value) in instead and instead[id(value)][0] is value:
                setattr(m, name, instead[id(value)][1])
    methods = [(found["harness"].Harness, ("read", "read_batch"))]
    if reader := found.get(READER):
        methods.append((reader.RolloutReader, ("search", "of", "views", "batch", "train_steps", "train")))
    for cls, names in methods:
        for name in names:
            if hasattr(cls, name):
                setattr(cls, name, counts.timed(getattr(cls, name)))


def walk(run: Path, out: Path, counts: Counts) -> None:
    """The run again, in `out`: every decision is made anew, every trial is what it was."""
    from evotrainer import api
    from evotrainer.executors.local import LocalExecutor
    from evotrainer.records.ledger import Ledger

    with Ledger.open(run / "ledger.db", readonly=True) as ledger:
        finished = {e.body.trial: e.body for e in ledger.events() if e.kind == "finished"}
    append = Ledger.append

    def recorded(self: Any, kind: str, id: str, body: Any) -> Any:
        if kind == "round":
            counts.round, counts.champion = body.round, body.champion
        return append(self, kind, id, body)

    def results(self: Any, specs: Sequence[Any], on_progress: Any = None) -> Iterator[Any]:
        for spec in specs:
            for kind in ("rollouts", "sealed", "trials"):
                if (run / kind / spec.trial).is_dir():
                    shutil.copytree(run / kind / spec.trial, out / kind / spec.trial, dirs_exist_ok=True)
            yield finished[spec.trial]

    Ledger.append, LocalExecutor.run = recorded, results  # type: ignore[method-assign]
    api.start(run / "task.toml", out)


def health(run: Path, trial: str) -> float:
    """CPU-seconds of what a trial's own process reads of its rollouts."""
    from evotrainer.executors.health import read_health
    from evotrainer.executors.spec import TrialSpec
    from evotrainer.records.ledger import Ledger

    with Ledger.open(run / "ledger.db", readonly=True) as ledger:
        done = next(e.body for e in ledger.events() if e.kind == "finished" and e.body.trial == trial)
        proxy = next(e.body for e in ledger.events() if e.kind == "run").environment.get("proxy")
    said = json.loads((run / "trials" / trial / "spec.json").read_text())
    spec = TrialSpec(**{k: v for k, v in said.items() if k in TrialSpec.model_fields})
    began = time.process_time()
    found = read_health(spec, run / "rollouts" / trial, proxy and tuple(proxy), done.curve)
    spent = time.process_time() - began
    assert [h.model_dump() for h in found] == [h.model_dump() for h in done.health], "not what the trial recorded"
    return spent


def told(counts: Counts) -> dict[str, Any]:
    """The counts since the last call, and none from here on."""
    kinds = ("objects", "champion", "turns", "traits")
    rounds = {n: {k: counts.rows[n, k] for k in kinds} for n in sorted({n for n, _ in counts.rows})}
    out = {"harness_cpu_s": round(counts.cpu, 2), "rounds": rounds}
    counts.rows.clear()
    counts.cpu = 0.0
    return out


def main() -> None:
    run = Path(sys.argv[1])
    counts = Counts()
    watch(counts)
    from evotrainer import api

    with tempfile.TemporaryDirectory() as tmp:
        out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tmp) / run.name
        began = time.process_time()
        walk(run, out, counts)
        print(json.dumps({"walk": told(counts), "process_cpu_s": round(time.process_time() - began, 2)}))
    counts.round = 0
    began = time.process_time()
    assert api.open_run(run).verify().ok
    print(json.dumps({"verify": told(counts), "process_cpu_s": round(time.process_time() - began, 2)}))
    trials = [
        p.name for p in sorted((run / "trials").glob("b*-s*")) if "-cert" not in p.name and "-closed" not in p.name
    ]
    spent = [health(run, t) for t in trials if not t.startswith("base")]
    print(json.dumps({"trials": len(spent), "cpu_s_each": round(sum(spent) / len(spent), 3), **told(counts)}))


if __name__ == "__main__":
    main()
