"""Trainer of causal language models of the Hugging Face form, through TRL's GRPOTrainer (docs/trainers.md).

Importing this package is light; torch, transformers and trl are loaded when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evotrainer.errors import MissingDependencyError

if TYPE_CHECKING:
    from evotrainer.trainers.trl.folder import load_model, load_tokenizer, save_merged
    from evotrainer.trainers.trl.mapping import MAPPING, config_fields
    from evotrainer.trainers.trl.options import TrlOptions
    from evotrainer.trainers.trl.scratch import warm_start
    from evotrainer.trainers.trl.trainer import TrlTrainer

__all__ = [
    "MAPPING",
    "TrlOptions",
    "TrlTrainer",
    "config_fields",
    "load_model",
    "load_tokenizer",
    "save_merged",
    "warm_start",
]

_HOME = {
    "MAPPING": "mapping",
    "TrlOptions": "options",
    "TrlTrainer": "trainer",
    "config_fields": "mapping",
    "load_model": "folder",
    "load_tokenizer": "folder",
    "save_merged": "folder",
    "warm_start": "scratch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as e:
        if (e.name or "").startswith("evotrainer"):
            raise
        raise MissingDependencyError(
            f"the trl trainer needs {e.name}, which is not installed; run: pip install 'evotrainer[trl]'"
        ) from e
    return getattr(module, name)
