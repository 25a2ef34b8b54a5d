"""Is there room for the trainings: on the disk for their weights, in memory for the model?"""

from __future__ import annotations

import shutil
from pathlib import Path

from evotrainer.errors import ConfigError
from evotrainer.executors import local_workers, wants_gpu
from evotrainer.records.regular_file import read_text
from evotrainer.records.text import counted
from evotrainer.records.weights import weight_files
from evotrainer.run.checks.base import BeforeRun, Found

COPIES = 4
"""Of the weights in memory, and on the disk while a training goes on: weights, gradients, AdamW's two moments."""


def room(at: BeforeRun) -> Found:
    """The first trainings fit on the disk and into memory, as far as this machine says; a note where fewer fit side by
    side than are started."""
    if at.fetched or at.base is None or at.task.executor.name != "local" or wants_gpu(at.task):
        return
    weights = sum(f.stat().st_size for f in weight_files(at.base))
    whole, seeds, side = "lora" not in at.task.trainer.options, len(at.task.run.seeds), local_workers(at.task)
    if whole and at.folder is not None:
        place = next(p for p in (at.folder, *at.folder.absolute().parents) if p.exists())
        need, free = weights * (seeds + COPIES - 1), shutil.disk_usage(place).free
        if free < need:
            raise ConfigError(
                f"{counted(seeds, 'training')} of the starting recipe write {need / 1e9:.1f} GB of weights and "
                f"checkpoints, and {place} has {free / 1e9:.1f} GB; make room, choose another --out, or train adapters "
                "(trainer.options.lora)"
            )
    each, memory = COPIES * weights, memory_free()
    if memory is None or memory >= each * side:
        return
    if memory < each:
        raise ConfigError(
            f"a training of {at.task.policy.base} needs {each / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} GB are "
            "free; end what uses it, or take a smaller model"
        )
    yield (
        f"{counted(side, 'training')} side by side need {each * side / 1e9:.1f} GB of memory, and {memory / 1e9:.1f} "
        f"GB are free; set run.workers={memory // each}"
    )


def memory_free(root: Path = Path("/")) -> int | None:
    """Bytes that programs may still take: of the machine, or of the control group that we are in; None: not known."""
    try:
        lines = read_text(root / "proc/meminfo").splitlines()
    except OSError:
        return None
    found = [int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")]
    for limit in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found.append(int(read_text(root / limit)))
        except (OSError, ValueError):  # no such group, or `max`
            continue
    return min(found, default=None)
