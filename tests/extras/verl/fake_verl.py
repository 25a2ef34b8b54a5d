"""Stands for verl's `trainer.main_ppo` and `model_merger` in tests: trains nothing, but grades by our plug-ins' code
and writes what verl writes (metrics by its file logger, which empties the file that it opens; checkpoints with their
tracker), resuming from the tracker as verl does.

FAKE_VERL, a JSON object: kill_at (dies by SIGKILL at this step, where it began anew), fail (exit code).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

WISH = json.loads(os.environ.get("FAKE_VERL", "{}"))


def install(folder: Path) -> None:
    """A package `verl` of version 0.9.1 in a folder, which runs this file."""
    for name in ("trainer/main_ppo.py", "model_merger/__main__.py"):
        path = folder / "verl" / name
        path.parent.mkdir(parents=True)
        (path.parent / "__init__.py").touch()
        path.write_text(f"from tests.extras.verl import fake_verl\nfake_verl.{name.split('/')[0]}()\n")
    (folder / "verl" / "__init__.py").touch()
    info = folder / "verl-0.9.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.9.1\n")


def trainer() -> None:
    from evotrainer.extras.verl.scoring import Origin, ProcessGrader
    from evotrainer.extras.verl.training import VerlTraining

    given = dict(a.split("=", 1) for a in sys.argv if "=" in a)
    if "fail" in WISH:
        print("CUDA out of memory", flush=True)
        raise SystemExit(WISH["fail"])
    root = Path(json.loads(given["trainer.default_local_dir"]))
    tracker, grader = root / "latest_checkpointed_iteration.txt", ProcessGrader(VerlTraining.read())
    begun = step = int(tracker.read_text()) if tracker.is_file() else 0
    prompts = [json.loads(x) for x in Path(json.loads(given["data.train_files"])).read_text().splitlines()]
    with open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0) as log:
        while step < int(given["trainer.total_training_steps"]):
            step += 1
            for n, row in enumerate(prompts[:4]):
                for k in (0, 1):
                    place = Origin(f"{os.getpid()}/{step}/{n}", k, step)
                    grader.grade(row["reward_model"]["ground_truth"], str(2 * n + k), [1, 2], "stop", place)
            if WISH.get("kill_at") == step and not begun:
                os.kill(os.getpid(), signal.SIGKILL)
            actor = root / f"global_step_{step}" / "actor"
            actor.mkdir(parents=True)
            (actor / "step").write_text(str(step))
            tracker.write_text(str(step))
            log.write(json.dumps({"step": step, "data": {"critic/score/mean": 0.5, "actor/entropy": 0.7}}).encode())
            log.write(b"\n")


def model_merger() -> None:
    from safetensors.numpy import save_file

    local, target = (Path(sys.argv[sys.argv.index(f"--{x}_dir") + 1]) for x in ("local", "target"))
    if not target.exists():
        target.mkdir()
    shutil.copy(local / "step", target / "step.txt")
    import numpy as np

    save_file({"w": np.full(2, int((local / "step").read_text()))}, target / "model.safetensors")
