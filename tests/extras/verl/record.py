"""Records what the real verl answers, for the tests that run without it.
From the repository's root, with verl's Python:

    PYTHONPATH=src:. python -m tests.extras.verl.record MODEL

MODEL: a folder with a tokenizer that verl can load. Writes data/answers.json; the live test compares one with a fresh
answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
SCRIPT = Path(__file__).parents[3] / "src/evotrainer/extras/verl/inside/check.py"
CASES: dict[str, tuple[dict[str, object], list[str]]] = {
    # name: (recipe factors, settings of the command line)
    "valid": ({}, []),
    "gpus do not divide the batch": ({"prompts_per_step": 3, "group_size": 3}, ["trainer.n_gpus_per_node=2"]),
    "mini-batch larger than the batch": ({}, ["actor_rollout_ref.actor.ppo_mini_batch_size=64"]),
    "tensor parallel does not divide the gpus": ({}, ["trainer.n_gpus_per_node=4",
                                                      "actor_rollout_ref.rollout.tensor_model_parallel_size=3"]),
    "unknown setting": ({}, ["actor_rollout_ref.rollout.gpu_memory_utilisation=0.5"]),
    "prompts are too long": ({}, ["data.max_prompt_length=3"]),
    "all plug-ins": ({"group_filter": {"kind": "ema_std"}, "resample": 1, "max_turns": 2, "kl_beta": 0.1}, []),
}  # fmt: skip


def answer(name: str, model: Path, folder: Path) -> dict[str, Any]:
    """What inside/check.py, run by this Python, says of a case."""
    from tests.extras.verl.asking import ask

    from evotrainer.trainers.command.mapping import Mapped, hydra
    from evotrainer.trainers.command.options import parse

    factors, settings = CASES[name]
    t = ask(folder, policy=model, **factors)
    keys = Mapped.of(parse({"command": "x", "map": "verl"})).settings(t.recipe)
    given = [*(f"{k}={hydra(v)}" for k, v in keys.items()), *settings]
    import os

    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, t.request, *t.settings(settings_of(given))],
        capture_output=True, text=True, env={**os.environ, **t.variables()},
    )  # fmt: skip
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {k: v for k, v in found.items() if k != "seconds"}


def settings_of(given: list[str]) -> list[str]:
    """The last of each key, as Hydra takes it."""
    return [f"{k}={v}" for k, v in dict(x.split("=", 1) for x in given).items()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        told = {}
        for i, name in enumerate(CASES):
            told[name] = answer(name, Path(sys.argv[1]), Path(d).resolve() / str(i))
            print(name, json.dumps(told[name]), flush=True)
    (DATA / "answers.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
