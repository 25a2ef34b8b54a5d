"""Checkpoints of a training: everything a killed process needs to end at bit-identical weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from evotrainer.errors import StoreError, TrainerError
from evotrainer.records.durable import recover_folder, whole_folder

FORMAT = 1


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write atomically: temporary folder, fsync, rename."""
    with whole_folder(folder, f"checkpoint {folder}", (OSError, RuntimeError)) as temp:
        torch.save({"format": FORMAT, **state}, temp / "state.pt")


def load_checkpoint(folder: Path, request: str) -> dict[str, Any] | None:
    """The last complete checkpoint of this request, None where there is none.

    `request` identifies recipe, seed and start policy; TrainerError where the checkpoint belongs to another request.
    """
    recover_folder(folder)
    for stale in folder.parent.glob(f".{folder.name}.writing-*"):
        shutil.rmtree(stale, ignore_errors=True)
    path = folder / "state.pt"
    if not path.exists():
        return None
    try:
        # weights_only: a checkpoint may be handed on, and unpickling runs code
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as e:  # torch.load raises many types for a damaged file
        raise StoreError(f"checkpoint {folder}: cannot be read ({e}); delete the folder to train from the start") from e
    if state.get("format") != FORMAT:
        raise TrainerError(f"checkpoint {folder}: format {state.get('format')}, expected {FORMAT}; delete the folder")
    if state["request"] != request:
        raise TrainerError(
            f"checkpoint {folder}: belongs to another recipe, seed or start policy; use a fresh work_dir or delete it"
        )
    return state
