"""Adapters (LoRA and kin, as peft stores them) merged into the model they were trained on."""

from __future__ import annotations

from pathlib import Path

from evotrainer.errors import MissingDependencyError, TrainerError, install
from evotrainer.records.text import cause
from evotrainer.trainers.bases import base_of, is_adapter, noted


def merge_adapter(policy: Path, out: Path) -> str:
    """Write the whole model, with its tokenizer, of an adapter folder to `out`; returns the base model's id or path.

    An adapter upon an adapter is merged with all below it, in the precision that the last base model is stored in.
    Raises MissingDependencyError without peft and transformers, TrainerError where base model or adapter cannot be
    read.
    """
    try:
        import peft  # noqa: F401
        from transformers import AutoTokenizer

        from evotrainer.trainers.trl.folder import load_model
    except ImportError as e:
        raise MissingDependencyError(
            f"{policy} is an adapter, which {e.name} merges; it is not installed: {install('trl')}"
        ) from None
    tokens = policy
    # an adapter folder of peft holds no tokenizer: it is the next base's that has one
    while is_adapter(tokens) and not any((tokens / f).is_file() for f in ("tokenizer.json", "tokenizer_config.json")):
        tokens = base_of(tokens)
    model = load_model(policy, "auto", merge=True)
    try:
        model.save_pretrained(out)
        AutoTokenizer.from_pretrained(tokens).save_pretrained(out)
    except (OSError, ValueError, RuntimeError, KeyError) as e:
        raise TrainerError(f"adapter {policy} cannot be written whole to {out}: {cause(e)}") from e
    while is_adapter(policy):
        name, policy = noted(policy)[0], base_of(policy)
    return name
