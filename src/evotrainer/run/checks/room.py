"""Is there room for the trainings: on the disk for their weights, in memory for the model?"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

from evotrainer.errors import ConfigError
from evotrainer.executors import local_workers, takes_gpu
from evotrainer.records.regular_file import open_regular, read_text
from evotrainer.records.text import counted
from evotrainer.records.weights import weight_files
from evotrainer.run.checks.base import BeforeRun, Found
from evotrainer.trainers.bases import base_of, is_adapter

IN_MEMORY = 6
"""Times the weights in fp32: weights, gradients, AdamW's two moments, what a step keeps (bench/real/step.md: 7)."""
CHECKPOINT = 3
"""Times the weights on the disk: weights and AdamW's two moments; twice while a new one replaces the old one."""


def room(at: BeforeRun) -> Found:
    """The first trainings fit on the disk and into memory, as far as this machine says; a note where fewer fit side by
    side than are started. Adapters are taken to fit on any disk. What a step of a large batch takes is not known."""
    if at.fetched or at.base is None or at.task.executor.name != "local" or takes_gpu(at.task):
        return
    weights, seeds, side = fp32_bytes(at.base), len(at.task.run.seeds), local_workers(at.task)
    if "lora" not in at.task.trainer.options and at.folder is not None:
        place = next(p for p in (at.folder, *at.folder.absolute().parents) if p.exists())
        need, free = weights * (seeds + 2 * CHECKPOINT * min(side, seeds)), shutil.disk_usage(place).free
        if free < need:
            raise ConfigError(
                f"{counted(seeds, 'training')} of the starting recipe write {need / 1e9:.1f} GB of weights and "
                f"checkpoints, and {place} has {free / 1e9:.1f} GB; make room, choose another --out, or train adapters "
                "(trainer.options.lora)"
            )
    each, memory = IN_MEMORY * weights, memory_free()
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


def fp32_bytes(policy: Path) -> int:
    """Bytes of a policy's numbers in fp32, whatever they are stored in; of adapters, with all that they lie upon."""
    found = 0
    for file in weight_files(policy):
        with open_regular(file) as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        found += 4 * sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")
    return found + fp32_bytes(base_of(policy)) if is_adapter(policy) else found


def memory_free(root: Path = Path("/")) -> int | None:
    """Bytes that programs may still take: of the machine, or of the control group at the root; None: not known."""
    try:
        lines = read_text(root / "proc/meminfo").splitlines()
    except OSError:
        return None
    found = [int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")]
    group = root / "sys/fs/cgroup"
    try:
        # what programs hold; the rest of memory.current is cache, which gives way
        held = sum(int(x.split()[1]) for x in read_text(group / "memory.stat").splitlines() if x.startswith("anon "))
        found.append(int(read_text(group / "memory.max")) - held)
    except (OSError, ValueError):  # no such group, or `max`
        pass
    return min(found, default=None)
