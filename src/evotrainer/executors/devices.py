"""GPUs that a trial holds: those that it was given, else those that its process sees."""

from __future__ import annotations

import glob
import os
import sys

GIVEN = "EVOTRAINER_TRIAL_GPUS"
"""GPUs (a share of one is a fraction) that an executor gave a trial, all its processes together."""


def gpus_held(trainer_takes: bool) -> float:
    """`trainer_takes`: does the trainer use a GPU where it sees one?"""
    if (given := os.environ.get(GIVEN, "")).replace(".", "", 1).isdecimal():
        return float(given)
    return float(visible_gpus()) if trainer_takes else 0.0


def visible_gpus() -> int:
    """GPUs that this process sees, by PyTorch where it is loaded, else as far as files tell."""
    from evotrainer.executors.local import gpu_visible

    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    if not gpu_visible():
        return 0
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(shown.split(",")) if shown else max(1, len(glob.glob("/dev/nvidia[0-9]*")))
