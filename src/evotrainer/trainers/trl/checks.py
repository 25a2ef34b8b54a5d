"""What a trial refuses in its first seconds, found from files and configuration alone: before a run, and by each of its
trainings again. Loads the tokenizer; of the model its shape, no weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.recipe import Recipe
from evotrainer.records.weights import weight_files
from evotrainer.trainers.base import TrainerEnvironment
from evotrainer.trainers.chat import notes_of_turns
from evotrainer.trainers.trl.folder import cause, context_of, empty_model, load_tokenizer
from evotrainer.trainers.trl.mapping import check
from evotrainer.trainers.trl.options import TrlOptions
from evotrainer.trainers.trl.setup import lora_config
from evotrainer.trainers.trl.templates import check_tools, codec_of, home_of
from evotrainer.trainers.trl.tools import ToolEnvironment, played_by_trl, rows_of

LONGEST = 8
"""Prompts whose tokens are counted."""


def check_trial(
    folder: Path | None, options: TrlOptions, recipes: Sequence[Recipe], environment: TrainerEnvironment
) -> list[str]:
    """Notes for the reader; ConfigError, TrainerError or TaskSetError as the trial would raise it.

    `folder`: of the base policy, None for one that is yet to be trained from scratch.
    """
    played = played_by_trl(environment)
    for recipe in recipes:
        check(recipe, options)
    if played is not None and any(r.written for r in recipes):
        raise ConfigError(
            f"recipe.written: rewards of {played.name} are computed by TRL, which runs no code of a recipe; leave it "
            "out, or write the function into the environment"
        )
    if folder is None:
        return []
    tokenizer = load_tokenizer(folder, options)
    model = check_weights(folder, options, len(tokenizer))
    if played is None:
        several = any(r.max_turns > 1 for r in recipes)
        return notes_of_turns(codec_of(folder, tokenizer, options), folder, several)
    return check_prompts(folder, tokenizer, options, played, context_of(model)) if played.conversational else []


def check_weights(folder: Path, options: TrlOptions, tokens: int) -> Any:
    """The model without weights. TrainerError where the policy's files are not of the model that its config.json tells
    of, or that embeds fewer than `tokens`; ConfigError where it has no module that an adapter is to lie upon."""
    from safetensors import SafetensorError, safe_open

    home = home_of(folder)
    model = empty_model(home, options)
    shapes = {k: list(v.shape) for k, v in model.state_dict().items()}
    for file in dict.fromkeys([*weight_files(folder), *weight_files(home)]):  # of adapters, and of what they lie upon
        try:
            with safe_open(file, "pt") as f:
                found = {k: f.get_slice(k).get_shape() for k in f.keys() if k in shapes}  # noqa: SIM118
        except (OSError, SafetensorError) as e:
            raise TrainerError(f"policy {home}: {file.name} cannot be read ({cause(e)}); restore it") from e
        if wrong := [k for k, shape in found.items() if shape != shapes[k]]:
            raise TrainerError(
                f"policy {home}: weight {wrong[0]} is {found[wrong[0]]} in {file.name}, and {shapes[wrong[0]]} by "
                "config.json; restore the policy folder"
            )
    if (rows := model.get_input_embeddings().num_embeddings) < tokens:
        raise TrainerError(
            f"policy {folder}: its tokenizer has {tokens} tokens, its model embeds {rows}; restore the tokenizer that "
            "the model was trained with"
        )
    if options.lora is not None:
        from peft import get_peft_model

        try:
            get_peft_model(model, lora_config(options))
        except ValueError as e:
            raise ConfigError(f"trainer.options.lora.targets: {cause(e)}; correct them, or take all-linear") from e
    return model


def check_prompts(
    folder: Path, tokenizer: Any, options: TrlOptions, environment: ToolEnvironment, context: int
) -> list[str]:
    """Messages, and tools where there are any, as the policy's chat template renders them: the longest ones, and one of
    each order of roles. `context`: tokens that the policy can hold. Notes for the reader."""
    if not tokenizer.chat_template:
        name, plays = environment.name, environment.environment_factory is not None
        what = f"environment {name} is played by tool calls" if plays else f"the prompts of {name} are messages"
        raise ConfigError(
            f"{what}, which the policy {folder} has no chat template for; give it one (chat_template.jinja in its "
            "folder), or write the prompts as plain text"
        )
    tools = environment.tool_methods()
    note = check_tools(folder, tokenizer, reads=bool(tools)) if environment.environment_factory else ""
    rows = rows_of([(t, (0,)) for t in all_tasks(environment)], environment)
    kinds = {tuple(m.get("role") for m in row["prompt"]): row for row in rows}
    for row in [*kinds.values(), *sorted(rows, key=lambda row: -len(str(row["prompt"])))[:LONGEST]]:
        try:
            ids = tokenizer.apply_chat_template(
                row["prompt"], tools=tools or None, add_generation_prompt=True, tokenize=True, return_dict=False,
                **options.chat_template_kwargs,
            )  # fmt: skip
        except Exception as e:  # templates raise jinja2's errors and their own; transformers, where a docstring lacks
            what = f"messages of {', '.join(str(m.get('role')) for m in row['prompt'])}{' with tools' if tools else ''}"
            raise ConfigError(
                f"policy {folder}: its chat template cannot render {what}: {cause(e)}; correct what it names, or give "
                "the policy another template"
            ) from e
        if len(ids) >= context:
            raise ConfigError(
                f"a prompt of {environment.name} has {len(ids)} tokens as policy {folder} reads it, which fills its "
                f"context of {context}; shorten prompts and tools, or take a policy with a longer context"
            )
    return [note] if note else []


def all_tasks(environment: Any) -> list[Any]:
    """Of every split."""
    return [t for split, n in environment.describe()["splits"].items() if n for t in environment.tasks(split)]
