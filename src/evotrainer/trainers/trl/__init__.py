"""Trainer of causal language models of the Hugging Face form, through TRL's GRPOTrainer (docs/trainers.md).

Importing this package is light; torch, transformers and trl are loaded when one of its names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evotrainer.errors import install
from evotrainer.trainers.lazy import attribute

if TYPE_CHECKING:
    from evotrainer.trainers.trl.folder import load_model as load_model
    from evotrainer.trainers.trl.folder import load_tokenizer as load_tokenizer
    from evotrainer.trainers.trl.mapping import config_fields as config_fields
    from evotrainer.trainers.trl.options import TrlOptions as TrlOptions
    from evotrainer.trainers.trl.scratch import warm_start as warm_start
    from evotrainer.trainers.trl.trainer import TrlTrainer as TrlTrainer

_HOME = {
    "TrlOptions": "options",
    "TrlTrainer": "trainer",
    "config_fields": "mapping",
    "load_model": "folder",
    "load_tokenizer": "folder",
    "warm_start": "scratch",
}
_NEEDS = f"the trl trainer needs {{}}, which is not installed; run: {install('trl')}"


def __getattr__(name: str) -> Any:
    return attribute(__name__, name, _HOME, _NEEDS)
