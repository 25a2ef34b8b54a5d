"""Records what the real verl answers, for the tests that run without it.
From the repository's root, with verl's Python:

    PYTHONPATH=src:. python -m tests.extras.verl.record OUR_PYTHON

`OUR_PYTHON` renders, verl's Python (this one) validates and writes the dumps with the trainer's own writer. Writes
data/answers.json and data/dump/; the live test compares the answers with fresh ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
CASES: dict[str, tuple[dict[str, object], list[str], list[str]]] = {
    # name: (recipe factors, verl settings added to config.yaml, Hydra overrides)
    "valid": ({}, [], []),
    "gpus do not divide the batch": ({"prompts_per_step": 3, "group_size": 3}, [], ["trainer.n_gpus_per_node=2"]),
    "mini-batch larger than the batch": ({}, [], ["actor_rollout_ref.actor.ppo_mini_batch_size=64"]),
    "tensor parallel does not divide the gpus": ({}, [], ["trainer.n_gpus_per_node=4", "trainer.nnodes=1",
                                                          "actor_rollout_ref.rollout.tensor_model_parallel_size=3"]),
    "unknown setting": ({}, ["actor_rollout_ref.rollout.gpu_memory_utilisation=0.5"], []),
    "all plug-ins": ({"group_filter": {"kind": "ema_std"}, "resample": 1, "max_turns": 2, "kl_beta": 0.1}, [], []),
}  # fmt: skip
UIDS = tuple(f"00000000-0000-4000-8000-00000000000{x}" for x in "abc")


def answers(python: str) -> dict[str, object]:
    """What inside/check.py says of each case."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, (factors, settings, overrides)) in enumerate(CASES.items()):
            target = Path(folder).resolve() / str(i)
            subprocess.run(
                [python, "-m", "tests.extras.verl.rendering", str(target), json.dumps(factors), *settings], check=True
            )
            script = Path("src/evotrainer/extras/verl/inside/check.py")
            done = subprocess.run([sys.executable, "-P", script, target, *overrides], capture_output=True, text=True)
            answer = json.loads(done.stdout.strip().splitlines()[-1])
            out[name] = {k: v for k, v in answer.items() if k != "seconds"}
            print(name, json.dumps(out[name]), flush=True)
    return out


def dump() -> None:
    """Two groups of two rollouts of one step, and one of validation, as verl's trainer writes them."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    inputs = [f"user\n{i}+{i}=\nassistant\n" for i in (0, 0, 1, 1)]
    PPOTrainer._write_generations(
        inputs,
        ["0", "1", "2", "2"],
        ["train-0", "train-0", "train-1", "train-1"],
        [1.0, 0.0, 1.0, 1.0],
        {"uid": [f"{u}_{k}_0" for u in UIDS[:2] for k in (0, 1)]},
        DATA / "dump" / "rollouts" / "attempt-1",
        1,
    )
    PPOTrainer._write_generations(
        inputs[:1],
        ["0"],
        ["search-0"],
        [1.0],
        {"reward": [1.0], "score": [1.0], "correct": [1.0], "right": [1.0], "digits": [1.0], "uid": [f"{UIDS[2]}_0_0"]},
        DATA / "dump" / "validation" / "attempt-1",
        0,
    )


if __name__ == "__main__":
    (DATA / "answers.json").write_text(json.dumps(answers(sys.argv[1]), indent=1) + "\n", encoding="utf-8")
    dump()
