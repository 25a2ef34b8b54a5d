"""Policy folders: config.json, model.safetensors, tokenizer files, generation_config.json; loadable by transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from evotrainer.errors import TrainerError
from evotrainer.records.durable import os_errors, whole_folder
from evotrainer.records.weights import INDEX, WHOLE, weight_files, weights_sha256
from evotrainer.trainers.bases import base_of, is_adapter
from evotrainer.trainers.chat import Chat
from evotrainer.trainers.embedded.lora import merge_saved
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer, Tokenizer, load_tokenizer

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    policy: Policy
    tokenizer: PolicyTokenizer


def save_policy(
    policy: Policy,
    tokenizer: PolicyTokenizer,
    folder: Path,
    dtype: Precision = "float32",
    save_weights: Callable[[Path], None] | None = None,
) -> None:
    """Write a policy folder, replacing an existing one only once the new one is complete on disk.

    bfloat16 halves the file and rounds the weights; loading gives the rounded weights in fp32. `save_weights`: writes
    adapters in their place.
    """
    if not _fits(tokenizer, policy.shape.vocab):
        raise TrainerError(
            f"policy has {policy.shape.vocab} tokens, its tokenizer {len(tokenizer)}; "
            "use the tokenizer it was built with"
        )
    with whole_folder(folder, f"policy {folder}", (OSError, SafetensorError)) as temp:
        pad, bos, eos = tokenizer.special_ids()
        config = policy.shape.hf_config(dtype, pad, bos, eos)
        _write_json(temp / "config.json", config)
        # top_k 0 switches off transformers' default of 50, which would cut the distribution that was trained
        generation = {"pad_token_id": pad, "bos_token_id": bos, "eos_token_id": eos, "do_sample": True, "top_k": 0}
        _write_json(temp / "generation_config.json", generation)
        tokenizer.save(temp, policy.shape.context)
        if save_weights is not None:
            save_weights(temp)
        else:
            state = {k: v.to(getattr(torch, dtype)).contiguous() for k, v in policy.to_hf().items()}
            save_file(state, temp / WHOLE, metadata={"format": "pt"})


def load_policy(folder: Path, trainable: bool = False, chat: Chat = "auto") -> LoadedPolicy:
    """Read a policy folder, `chat` as `ChatTokenizer` takes it; TrainerError names what is missing or malformed."""
    if not folder.is_dir():
        raise TrainerError(f"policy {folder}: no such folder; run the warm start first or correct base_policy")
    if is_adapter(folder):
        loaded = load_policy(base_of(folder), trainable, chat)
        merge_saved(loaded.policy, folder)
        return loaded
    shape = DecoderShape.of(folder)
    state: dict[str, torch.Tensor] = {}
    for f in weight_files(folder):
        try:
            state |= load_file(f)
        except (OSError, SafetensorError) as e:
            raise TrainerError(f"policy {folder}: {f.name} cannot be read ({e}); restore the policy folder") from None
    if not state:
        raise _without_weights(folder)
    tokenizer = load_tokenizer(folder, chat)
    if not _fits(tokenizer, shape.vocab):
        raise TrainerError(
            f"policy {folder}: config.json says {shape.vocab} tokens, tokenizer.json has {len(tokenizer)}; "
            "restore the policy folder"
        )
    return LoadedPolicy(Policy(shape, trainable).from_hf(state, str(folder)), tokenizer)


def _fits(tokenizer: PolicyTokenizer, vocab: int) -> bool:
    """Has a tokenizer as many tokens as the policy? Language models may have rows for tokens that there are not."""
    return len(tokenizer) == vocab if isinstance(tokenizer, Tokenizer) else len(tokenizer) <= vocab


def file_sha256(folder: Path) -> str:
    """SHA-256 of the weights, or of the adapters; TrainerError where they are missing, StoreError where unreadable."""
    with os_errors(f"policy {folder}: its weights cannot be read"):
        sha = weights_sha256(folder)
    if sha is None:
        raise _without_weights(folder)
    return sha


def _without_weights(folder: Path) -> TrainerError:
    return TrainerError(f"policy {folder}: {WHOLE} is missing, or a file that {INDEX} names; restore the policy folder")


def _write_json(path: Path, body: Mapping[str, object]) -> None:
    path.write_text(json.dumps(body, indent=1) + "\n")
