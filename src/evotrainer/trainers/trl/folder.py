"""Policy folders of the Hugging Face form: whole weights (one file or shards) or peft adapters,
with their tokenizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from evotrainer.errors import TrainerError
from evotrainer.records.durable import whole_folder
from evotrainer.records.text import cut
from evotrainer.trainers.bases import base_of, is_adapter
from evotrainer.trainers.trl.options import TrlOptions

logging.disable_progress_bar()  # a trial's log is a file; loading takes a moment


def device_of(options: TrlOptions) -> torch.device:
    """The device of this process; TrainerError where cuda is asked for and missing."""
    there = torch.cuda.is_available()
    if options.device == "cuda" and not there:
        raise TrainerError(
            "trainer.options.device=cuda, but torch sees no GPU; set it to auto, or install torch with CUDA"
        )
    if options.device == "cpu" or not there:
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def forward_dtype(options: TrlOptions, device: torch.device) -> torch.dtype:
    """What forward passes compute in."""
    if options.dtype == "auto":
        good = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if good else torch.float32
    return torch.bfloat16 if options.dtype == "bfloat16" else torch.float32


def load_tokenizer(folder: Path, options: TrlOptions | None = None) -> Any:
    """The policy's tokenizer, padding on the left; TrainerError where there is none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=bool(options and options.trust_remote_code), padding_side="left"
        )
    except Exception as e:  # transformers raises many types
        raise TrainerError(f"policy {folder}: no tokenizer that transformers can load ({cause(e)})") from e
    if tokenizer.eos_token_id is None:
        raise TrainerError(
            f"policy {folder}: its tokenizer has no end-of-text token; set eos_token in tokenizer_config.json"
        )
    if tokenizer.pad_token_id is None:
        # common for base models; padding is masked, so which token it is does not matter
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    folder: Path,
    dtype: torch.dtype | str,
    options: TrlOptions | None = None,
    *,
    merge: bool = False,
    base: Path | None = None,
) -> Any:
    """The policy's model; adapters lie upon their base model (`trainers.bases`), or are merged into it.

    `dtype`: `auto` for that of the base model's own files. `base`: in place of the one the folder names. TrainerError
    says what is wrong with the folder.
    """
    from transformers import AutoModelForCausalLM

    options = options or TrlOptions()
    kwargs: dict[str, Any] = {"dtype": dtype, "trust_remote_code": options.trust_remote_code}
    if options.attention:
        kwargs["attn_implementation"] = options.attention
    # recursive: an adapter's base may be an adapter itself, merged on the way up
    model = load_model(base or base_of(folder), dtype, options, merge=True) if is_adapter(folder) else None
    try:
        if model is None:
            model = AutoModelForCausalLM.from_pretrained(folder, **kwargs)
        else:
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, str(folder))
            model = model.merge_and_unload().requires_grad_(True) if merge else model  # peft has frozen the base
    except Exception as e:  # transformers and peft raise many types
        raise _unloadable(folder, e) from e
    model.config._name_or_path = str(folder)  # TRL loads its reference model from there
    return model


def empty_model(folder: Path, options: TrlOptions) -> Any:
    """The model that config.json tells of, without weights; TrainerError where transformers knows none."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=options.trust_remote_code)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=options.trust_remote_code)
    except Exception as e:  # transformers raises many types
        raise _unloadable(folder, e) from e


def _unloadable(folder: Path, e: Exception) -> TrainerError:
    return TrainerError(f"policy {folder}: transformers cannot load it ({cause(e)}); restore the policy folder")


def stop_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end an action: the tokenizer's and all that the model declares."""
    declared = model.generation_config.eos_token_id if model.generation_config else None
    # transformers allows one id or a list (Llama 3 ends turns and texts by different tokens)
    ids = [declared] if isinstance(declared, int) else list(declared or ())
    return tuple(dict.fromkeys([tokenizer.eos_token_id, *ids]))


def context_of(model: Any) -> int:
    """Tokens that the model can hold."""
    text = model.config.get_text_config()
    # no declared limit (recurrent or ALiBi models): a million tokens, which no batch reaches
    return int(getattr(text, "max_position_embeddings", 0) or 1 << 20)


def save_folder(folder: Path, parts: Sequence[Callable[[Path], Any]]) -> None:
    """Write a policy folder, replacing an existing one only once the new one is complete on disk."""
    with whole_folder(folder, f"policy {folder}", (OSError, RuntimeError)) as temp:
        for write in parts:
            write(temp)


def cause(e: Exception) -> str:
    """An error of a library in one line."""
    return cut(" ".join(str(e).split()), 400) or type(e).__name__
