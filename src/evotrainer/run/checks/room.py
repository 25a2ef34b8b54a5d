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
        place = next(p for p in (at.folder, *at.folder.absolute().parents) if p.exists())
        lora, n = at.task.trainer.options.get("lora"), likely(at.task)
        each = weights if lora is None else 4 * parsed(Lora, lora, "trainer.options.lora").numbers(sizes)
        need, free = each * (n + 2 * CHECKPOINT * min(side, n)), shutil.disk_usage(place).free
        if free < need:
            raise ConfigError(
                f"{counted(n, 'training')} write {need / 1e9:.2g} GB of weights and checkpoints, and {place} has "
                f"{free / 1e9:.2g} GB; make room, or choose another --out"
                + (", or train adapters (trainer.options.lora)" if lora is None else "")
            )
    each, memory = round(IN_MEMORY * weights), memory_free()
    if memory is None or memory >= each * side:
        return
    if memory < each:
        raise ConfigError(
            f"a training of {at.task.policy.base} needs {each / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} GB are "
            "free; end what uses it, or take a smaller model"
        )
    yield (
        f"{counted(side, 'training')} side by side need {each * side / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} "
        f"GB are free; set run.workers={memory // each} (fewer are started once the system has ended one)"
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
    found = {}
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
