"""Is there room for the trainings: on the disk for their weights, in memory for the model?"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError
from evotrainer.executors import local_workers, takes_gpu
from evotrainer.records.frozen import parsed
from evotrainer.records.processes import memory_free
from evotrainer.records.regular_file import open_regular
from evotrainer.records.text import counted
from evotrainer.records.weights import weight_files
from evotrainer.run.checks.base import BeforeRun, Found
from evotrainer.trainers.bases import base_of, is_adapter
from evotrainer.trainers.lora import Lora

IN_MEMORY = 7.5
"""Times the weights in fp32: weights, gradients, AdamW's two moments, what a step keeps (bench/real/README.md: 3.9 GB
of 0.54). A step of a large batch, or through TRL, takes more."""
CHECKPOINT = 3
"""Times what is trained on the disk: weights and AdamW's two moments; twice while a new one replaces the old one."""


def room(at: BeforeRun) -> Found:
    """What the trainings write fits on the disk, and one of them into memory, as far as this machine says; a note where
    fewer fit side by side than are started."""
    if at.fetched or at.base is None or at.task.executor.name != "local" or takes_gpu(at.task):
        return
    sizes, side = shapes(at.base), local_workers(at.task)
    weights = 4 * sum(map(math.prod, sizes.values()))
    if at.folder is not None:
        lora = at.task.trainer.options.get("lora")
        each = 4 * parsed(Lora, lora, "trainer.options.lora").numbers(sizes) if lora is not None else weights
        on_disk(at.folder, each, likely(at.task), side, "" if lora else ", or train adapters (trainer.options.lora)")
    need, memory = round(IN_MEMORY * weights), memory_free()
    if memory is None or memory >= need * side:
        return
    if memory < need:
        raise ConfigError(
            f"a training of {at.task.policy.base} needs {need / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} GB are "
            "free; end what uses it, or take a smaller model"
        )
    yield (
        f"{counted(side, 'training')} side by side need {need * side / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} "
        f"GB are free; set run.workers={memory // need} (fewer are started once the system has ended one)"
    )


def on_disk(folder: Path, each: int, trainings: int, side: int, remedy: str) -> None:
    """ConfigError where weights of `each` bytes a training, and checkpoints of `side` at once, do not fit there."""
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    need, free = each * (trainings + 2 * CHECKPOINT * min(side, trainings)), shutil.disk_usage(place).free
    if free < need:
        raise ConfigError(
            f"{counted(trainings, 'training')} write {need / 1e9:.2g} GB of weights and checkpoints, and {place} has "
            f"{free / 1e9:.2g} GB; make room, or choose another --out{remedy}"
        )


def likely(task: TaskFile) -> int:
    """Trainings of a run where every branch has its first seeds."""
    run = task.run
    if run.search_only or not run.rounds:
        return len(run.seeds) + run.rounds * run.probes
    branches = 1 if run.probes else run.branches
    return len(run.seeds) * (1 + run.rounds * branches) + run.rounds * run.probes + len(run.certify_seeds)


def shapes(policy: Path) -> dict[str, list[int]]:
    """Tensor -> its shape, of a policy's weights; of adapters, with all that they lie upon. ConfigError."""
    found: dict[str, list[int]] = {}
    for file in weight_files(policy):
        try:
            with open_regular(file) as f:
                header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            found |= {name: t["shape"] for name, t in header.items() if name != "__metadata__"}
        except (ValueError, TypeError, KeyError, AttributeError, MemoryError, OverflowError):
            raise ConfigError(
                f"policy {policy}: {file.name} is no whole safetensors file; restore the folder"
            ) from None
    return found | shapes(base_of(policy)) if is_adapter(policy) else found
