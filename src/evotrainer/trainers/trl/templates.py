"""What a policy's chat template must be able to do, checked before a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.records.regular_file import read_object
from evotrainer.trainers.chat import SWAPPED, ChatCodec, stop_ids, training_template
from evotrainer.trainers.trl.options import TrlOptions


def codec_of(folder: Path, tokenizer: Any, options: TrlOptions) -> ChatCodec:
    """A policy's codec, without its model."""
    return ChatCodec(tokenizer, stop_ids(home_of(folder), tokenizer), options.chat, options.chat_template_kwargs)


def prompt_room(folder: Path, options: TrlOptions, prompts: Sequence[Sequence[Any]]) -> tuple[list[int], int]:
    """(tokens of each prompt, tokens that the policy can hold: a million where it declares no limit)."""
    from evotrainer.trainers.trl.folder import load_tokenizer

    codec = codec_of(folder, load_tokenizer(folder, options), options)
    config = read_object(home_of(folder) / "config.json")
    text = config.get("text_config") or config
    context = int(text.get("max_position_embeddings") or 1 << 20)
    return [len(codec.prompt(p)) for p in prompts], context


def check_tools(folder: Path, tokenizer: Any, reads: bool = True) -> str:
    """ConfigError where TRL's tool loop cannot write or read tool calls by a policy's template; else a note, or
    nothing. By TRL's own rules, as its GRPOTrainer asks them. `reads`: are there tools that the policy may call?"""
    from trl import chat_template_utils as trl

    try:
        fits = trl.supports_tool_calling(tokenizer)
        preserves = fits and trl.is_chat_template_prefix_preserving(tokenizer)
    except Exception as e:  # templates raise jinja2's errors and their own
        raise ConfigError(
            f"policy {folder}: its chat template cannot render tool calls: {e}; give the policy a template that does"
        ) from e
    if not fits:
        raise ConfigError(
            f"policy {folder}: its chat template leaves tool calls or their answers out; give the policy a template "
            "that renders both"
        )
    if reads and all(getattr(tokenizer, x, None) is None for x in ("response_template", "response_schema")):
        try:
            trl.add_response_schema(tokenizer)
        except ValueError as e:
            raise ConfigError(
                f"policy {folder}: TRL does not know how to read tool calls back from its chat template; set "
                'response_template in its tokenizer_config.json (Transformers, "Response parsing"), or take a policy '
                "whose template TRL knows (Qwen2.5, Qwen3, Llama 3, ...)"
            ) from e
    if preserves or not reads:
        return ""
    if training_template(tokenizer) is None:
        raise ConfigError(
            f"policy {folder}: its chat template renders a tool call differently once the tool's answer follows, and "
            "TRL has no training template for it; give the policy a prefix-preserving template"
        )
    return SWAPPED


def home_of(folder: Path) -> Path:
    """The folder of whole weights: an adapter's base."""
    from evotrainer.trainers.bases import base_of, is_adapter

    while is_adapter(folder):
        folder = base_of(folder)
    return folder
