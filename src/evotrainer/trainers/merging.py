"""Adapters (LoRA and kin, as peft stores them) merged into the model they were trained on."""

from __future__ import annotations

import json
from pathlib import Path

from evotrainer.errors import MissingDependencyError, TrainerError

ADAPTER = "adapter_config.json"


def merge_adapter(policy: Path, out: Path) -> str:
    """Write the whole model, with its tokenizer, of an adapter folder to `out`; returns the base model's id or path.

    The weights are merged in the precision that the base model is stored in. Raises MissingDependencyError without peft
    and transformers, TrainerError where base model or adapter cannot be read.
    """
    try:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as e:
        raise MissingDependencyError(
            f"{policy} is an adapter, which {e.name} merges; it is not installed: pip install 'evotrainer[trl]'"
        ) from None
    try:
        base = str(json.loads((policy / ADAPTER).read_text("utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise TrainerError(f"{policy / ADAPTER} names no base model ({e}); restore the policy folder") from None
    try:
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
        merged = PeftModel.from_pretrained(model, policy).merge_and_unload()
        merged.save_pretrained(out)
        own = any((policy / f).is_file() for f in ("tokenizer.json", "tokenizer_config.json"))
        AutoTokenizer.from_pretrained(policy if own else base).save_pretrained(out)
    except (OSError, ValueError, RuntimeError, KeyError) as e:
        cause = str(e).strip().split("\n")[0][:300]
        raise TrainerError(
            f"adapter {policy} cannot be merged into {base}: {cause}; make the base model readable at that path or id"
        ) from e
    return base
