"""A real training by verl on a GPU, from a rendered folder, with a kill -9 in the middle. One command:

    python -m bench.verl.train VERL_PYTHON MODEL [--out DIR] [--steps N] [--engine vllm]

Renders examples/trl-gsm8k.toml for MODEL (a folder that `evotrainer base examples/trl-gsm8k.toml --out MODEL` made) and
one GPU, validates and starts it, ends verl's process group with SIGKILL after the first checkpoint, waits until the
GPU is free, starts it again, and reads what there is: metrics of every step, rollouts with their components,
checkpoints, the merged policy.
Prints a table; `--write` puts it into results-gpu.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from evotrainer.extras.verl.venv import probe

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL = (
    "ray_kwargs.ray_init.num_cpus=16",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "actor_rollout_ref.rollout.enforce_eager=true",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    "actor_rollout_ref.rollout.agent.num_workers=1",
)
PATIENCE_S = 400.0
"""Of an attempt. On a fresh machine 162 s passed before verl was ready, 28 more before the first step."""

Row = tuple[str, str, float]


def evo(*words: object) -> subprocess.CompletedProcess[str]:
    """A command of evotrainer, in this Python."""
    command = [sys.executable, "-m", "evotrainer", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def told(done: subprocess.CompletedProcess[str], lines: int = 2) -> str:
    """The end of what a command said."""
    text = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    return f"exit code {done.returncode}: " + " / ".join(line.strip() for line in text[-lines:])


def latest_step(folder: Path) -> int:
    """Step that verl would resume from; 0: it would begin anew."""
    tracker = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    return int(tracker.read_text()) if tracker.is_file() else 0


def attempt(folder: Path, python: Path, log: Path, until: int | None) -> str:
    """Start verl and wait until it ends, or its checkpoint of step `until` is there and it is killed; what came of
    it."""
    env = {**os.environ, "VERL_PYTHON": str(python)}
    with log.open("wb") as to:
        p = subprocess.Popen(["sh", folder / "launch.sh"], stdout=to, stderr=to, env=env, start_new_session=True)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if p.poll() is not None:
            return f"ended with exit code {p.returncode}"
        if until is not None and latest_step(folder) >= until:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            return f"killed with SIGKILL at checkpoint {latest_step(folder)}, GPU {released()}"
        time.sleep(0.2)
    os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    return "out of time"


def released(least_mib: int = 1000, patience_s: float = 60.0) -> str:
    """Wait until what the killed processes' workers held of the GPU is free: Ray ends them some seconds later."""
    began, used = time.monotonic(), least_mib
    while used >= least_mib and time.monotonic() - began < patience_s:
        asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        used = sum(int(x) for x in subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())
        time.sleep(0.5)
    return f"{'still held' if used >= least_mib else 'free'} after {time.monotonic() - began:.0f} s ({used} MiB)"


def named_errors(log: Path, most: int = 3) -> str:
    """The first exceptions that a log names."""
    found = re.findall(r"\b[A-Z][A-Za-z]*(?:Error|Exception): \S.*", log.read_text(encoding="utf-8", errors="replace"))
    return " / ".join(list(dict.fromkeys(x[:200] for x in found))[:most]) or "names no exception"


def rows(folder: Path, model: Path, venv: Path, steps: int, engine: str, settings: Sequence[str] = ()) -> list[Row]:
    """Each step of the way: what it was, what came of it, seconds."""
    out: list[Row] = []

    def step(name: str, *words: object, lines: int = 2) -> bool:
        began = time.monotonic()
        done = evo(*words)
        out.append((name, told(done, lines), time.monotonic() - began))
        print(*out[-1], flush=True)
        return done.returncode == 0

    sets = [x for s in (*SMALL, *settings) for x in ("--set", s)]
    ok = step(
        "render", "verl", "render", "examples/trl-gsm8k.toml", f"recipe.steps={steps}", "--model", model, "--gpus", 1,
        "--engine", engine, "--attention", "sdpa", "--prompt-tokens", 160, "--set", "trainer.save_freq=2",
        "--set", "trainer.test_freq=4", *sets, "--out", folder,
    )  # fmt: skip
    if not ok or not step("validate", "verl", "validate", folder, "--venv", venv):
        return out
    python = venv / "bin" / "python"
    for number, until in enumerate((2, None), 1):
        began, before, log = time.monotonic(), latest_step(folder), folder / f"attempt-{number}.log"
        now = attempt(folder, python, log, until)
        out.append((f"attempt {number}", f"{now}, from step {before}", time.monotonic() - began))
        print(*out[-1], flush=True)
        if not now.startswith("killed") and not now.endswith(" 0"):
            out.append((f"log {number}", named_errors(log), 0.0))
            print(*out[-1], flush=True)
            return out
    step("metrics", "audit", folder / "metrics", lines=steps + 2)
    last = folder / "checkpoints" / f"global_step_{latest_step(folder)}" / "actor"
    began = time.monotonic()
    merge = [python, "-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", last]
    merged = subprocess.run([*merge, "--target_dir", folder / "policy"], capture_output=True, text=True)
    policy = sorted(p.name for p in folder.glob("policy/*"))
    out.append(("merge", f"{told(merged)}; {', '.join(policy)}", time.monotonic() - began))
    print(*out[-1], flush=True)
    store = folder / "store"
    if step("import", "import", folder, "--out", store):
        step("audit", "audit", store, lines=12)
    return out


def main(argv: Sequence[str] | None = None) -> None:
    ask = argparse.ArgumentParser(prog="python -m bench.verl.train", description=__doc__)
    ask.add_argument("python", type=Path)
    ask.add_argument("model", type=Path)
    ask.add_argument("--out", type=Path)
    ask.add_argument("--steps", type=int, default=6)
    ask.add_argument("--engine", default="vllm")
    ask.add_argument("--set", action="append", default=[], dest="settings", help="a further setting of verl, key=value")
    ask.add_argument("--write", action="store_true")
    given = ask.parse_args(argv)
    python = Path(os.path.abspath(given.python))
    with tempfile.TemporaryDirectory() as d:
        folder = (given.out or Path(d) / "v").resolve()
        found = rows(folder, given.model.resolve(), python.parent.parent, given.steps, given.engine, given.settings)
        metrics = [json.loads(x) for f in sorted(folder.glob("metrics/*.jsonl")) for x in f.read_text().splitlines()]
    listed = subprocess.run(["sh", "-c", "nvidia-smi -L"], capture_output=True, text=True).stdout
    seen = listed.split(" (UUID")[0].strip() or "no GPU"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout
    versions = ", ".join(f"{k} {v}" for k, v in probe(python).versions.items() if v)
    text = "\n".join(
        [
            "# verl with a GPU",
            "",
            f"`python -m bench.verl.train VERL_PYTHON MODEL --write`, {date.today()}, commit {commit.strip()}; {seen}; "
            f"{versions}; {len(metrics)} rows of metrics.",
            "",
            "| step | outcome | seconds |",
            "|---|---|---|",
            *(f"| {n} | {what.replace('|', '/')} | {s:.1f} |" for n, what, s in found),
            "",
        ]
    )
    print(text)
    if given.write:
        (HERE / "results-gpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
