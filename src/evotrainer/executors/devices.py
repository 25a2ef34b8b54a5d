"""GPUs that a trial holds: those that it was given, else those that its process sees. Loads no library."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import takewhile

GIVEN = "EVOTRAINER_TRIAL_GPUS"
"""GPUs (a share of one is a fraction) that an executor gave a trial, all its processes together."""
DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Files of a GPU's driver: NVIDIA's, the same under WSL, AMD's."""

FILES = "/dev/nvidia[0-9]*"


def gpu_visible(drivers: Sequence[str] = DRIVERS) -> bool:
    """Whether this machine has a GPU that CUDA_VISIBLE_DEVICES does not hide, as far as files tell;
    loads no library."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None and (not shown.strip() or shown.strip().startswith("-1")):
        return False
    return any(os.path.exists(p) for p in drivers)


def visible_gpus() -> int:
    """How many, as PyTorch counts them, as far as files and CUDA_VISIBLE_DEVICES tell."""
    if not gpu_visible():
        return 0
    files, shown = len(glob.glob(FILES)), os.environ.get("CUDA_VISIBLE_DEVICES")
    if not shown:
        return max(1, files)

    def is_one(name: str) -> bool:
        return bool(name) and not name.startswith("-") and not (files and name.isdecimal() and int(name) >= files)

    # CUDA counts up to the first name that is none
    return len(list(takewhile(is_one, map(str.strip, shown.split(",")))))


def gpus_held(trainer_takes: bool) -> float:
    """`trainer_takes`: does the trainer use a GPU where it sees one?"""
    if (given := os.environ.get(GIVEN, "")).replace(".", "", 1).isdecimal():
        return float(given)
    return float(visible_gpus()) if trainer_takes else 0.0
