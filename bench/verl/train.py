"""A real training by verl as a trial, with a kill -9 in the middle. One command:

    python -m bench.verl.train VERL_PYTHON [SETTING...]

Trains the scaffold's task from a two-layer model made on the spot, on one GPU (without one: cpu.md), ends verl's driver
with SIGKILL after the first checkpoint, and reads what the trial left: steps, rollouts, policy. Writes trained.md
beside this file. SETTING: verl's own, key=value.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

from bench.verl.__main__ import HERE, asked, options
from evotrainer.envs import open_environment
from evotrainer.trainers.command.keeper import below
from evotrainer.trainers.command.trainer import CommandTrainer

SMALL = (
    "actor_rollout_ref.rollout.enforce_eager=true",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=false",
    "data.max_prompt_length=64",
    "trainer.save_freq=2",
)
RECIPE = ("steps=6", "prompts_per_step=4", "group_size=4", "rewards={brevity = 1.0}")
"""Paid for brevity: of what an untrained model says, nothing else varies."""


def main(python: Path, settings: list[str]) -> None:
    began, steps, killed = time.monotonic(), Counter[int](), list[str]()
    with tempfile.TemporaryDirectory() as d:
        tracker = Path(d) / "trial" / "command" / "out" / "checkpoints" / "latest_checkpointed_iteration.txt"

        def watch(step: int, reward: float | None) -> None:
            if tracker.is_file() and not killed:
                killed.append(f"step {tracker.read_text()}, {time.monotonic() - began:.0f} s")
                for pid in below(os.getpid()):
                    if b"verl.trainer.main_ppo" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)

        request = asked(python, Path(d), *(f"recipe.{x}" for x in RECIPE), watch=watch)
        trainer = CommandTrainer({**options(python, *SMALL, *settings), "restarts": 1})
        with contextlib.closing(open_environment(request.environment)) as environment:
            done = trainer.train(
                request, environment, lambda groups: steps.update(r.step for g in groups for r in g), lambda _: None
            )
        policy = ", ".join(sorted(p.name for p in done.policy_dir.iterdir()))
    smi = ["nvidia-smi", "-L"] if shutil.which("nvidia-smi") else ["echo", "no GPU"]
    seen = subprocess.run(smi, capture_output=True, text=True).stdout.split(" (UUID")[0].strip()
    rows = [
        ("killed with SIGKILL at its checkpoint", "; ".join(killed)),
        ("went on from it", str(done.resumed)),
        ("steps of the curve", str([int(row["step"]) for row in done.curve])),
        ("rollouts a step", str(dict(sorted(steps.items())))),
        ("policy", policy),
        ("seconds", f"{time.monotonic() - began:.0f}"),
    ]
    table = "".join(f"| {name} | {what} |\n" for name, what in rows)
    head = f"# A training by verl\n\n`python -m bench.verl.train VERL_PYTHON`, {date.today()}; {seen}.\n\n"
    (HERE / "trained.md").write_text(f"{head}| what | outcome |\n|---|---|\n{table}", encoding="utf-8")
    print(head + table)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(Path(os.path.abspath(sys.argv[1])), sys.argv[2:])
