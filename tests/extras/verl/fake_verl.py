#!/usr/bin/env python3
"""Stands for verl's Python in tests: answers our probes, and in place of
`verl.trainer.main_ppo` trains nothing but writes what verl's trainer writes (metrics by its file logger, which empties
the file it opens; console lines; checkpoints with their tracker; dumps), resuming from the tracker as verl does.

FAKE_VERL, a JSON object: kill_at (dies by SIGKILL at this step of the first attempt), fail (exit code),
answer (to a validation, a name of data/answers.json).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

WISH = json.loads(os.environ.get("FAKE_VERL", "{}"))
VERSIONS = ("verl", "torch", "ray", "transformers", "vllm", "sglang", "TransferQueue", "hydra-core", "evotrainer")


def overrides() -> dict[str, str]:
    return dict(a.split("=", 1) for a in sys.argv if "=" in a)


def train() -> int:
    folder = Path(sys.argv[sys.argv.index("--config-path") + 1])
    given = overrides()
    metrics = Path(given["ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH"])
    dumps = Path(given["trainer.rollout_data_dir"])
    root = folder / "checkpoints"
    tracker = root / "latest_checkpointed_iteration.txt"
    first = metrics.name == "attempt-1.jsonl"
    step = int(tracker.read_text()) if tracker.is_file() else 0
    print(f"fake verl: {os.environ['VERL_USE_EXTERNAL_MODULES']} {os.environ.get('RAY_ADDRESS', 'local')}", flush=True)
    if "fail" in WISH:
        print("CUDA out of memory", flush=True)
        return int(WISH["fail"])
    log = metrics.open("wb", buffering=0)

    def note(n: int, data: dict[str, float]) -> None:
        log.write(json.dumps({"step": n, "data": data}).encode() + b"\n")
        print(
            f"(TaskRunnerV1 pid=7) step:{n} - " + " - ".join(f"{k}:np.float64({v})" for k, v in data.items()),
            flush=True,
        )

    note(step, {"val-core/evotrainer/sums/reward/mean@1": 0.25})
    while step < 3:
        step += 1
        if WISH.get("kill_at") == step and first:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        dumps.mkdir(parents=True, exist_ok=True)
        row = {"input": "0+0=", "output": "0", "gts": "train-0", "score": 1.0, "step": step,
               "uid": f"00000000-0000-4000-8000-{os.getpid():012d}_{step}_0"}  # fmt: skip
        (dumps / f"{step}.jsonl").write_text(json.dumps(row) + "\n")
        if step >= 2:
            actor = root / f"global_step_{step}" / "actor"
            actor.mkdir(parents=True, exist_ok=True)
            (actor / "model_world_size_1_rank_0.pt").write_bytes(bytes(1000))
            (actor.parent / "data.pt").write_bytes(bytes(24))
            tracker.write_text(str(step))
        note(step, {"critic/score/mean": step / 10, "actor/entropy": 0.5, "training/global_step": float(step)})
    return 0


def main() -> int:
    if "-I" in sys.argv:
        have = {"verl": "0.9.1", "torch": "2.13.0", "TransferQueue": "0.1.11", "evotrainer": "0.1.0"}
        print(json.dumps({n: have.get(n) for n in VERSIONS}))
        return 0
    if "-P" in sys.argv:
        answers = json.loads((Path(__file__).parent / "data" / "answers.json").read_text())
        print("libraries talk\n" + json.dumps({**answers[WISH.get("answer", "valid")], "seconds": 9.0}))
        return 0
    return train()


if __name__ == "__main__":
    raise SystemExit(main())
