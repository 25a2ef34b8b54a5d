"""The embedded trainer's row of `trainers.TRAINERS`; importing it loads no machine-learning library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError, install
from evotrainer.records.frozen import parsed
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Turn
from evotrainer.trainers.base import (
    SamplerDtype,
    Trainer,
    TrainerEnvironment,
    TrainerSpec,
    WarmStartRequest,
    conversational,
)
from evotrainer.trainers.chat import Chat
from evotrainer.trainers.lora import MODULES, Lora


def make(sampler: SamplerDtype, options: Mapping[str, Any]) -> Trainer:
    """The trainer; ConfigError for an option that it has not."""
    check(options, (), sampler)
    from evotrainer.trainers.embedded.trainer import EmbeddedTrainer

    return EmbeddedTrainer(bf16=sampler == "bf16", lora=_lora(options), chat=_chat(options))


def check(options: Mapping[str, Any], recipes: Sequence[Recipe], sampler: str) -> None:
    """It takes every recipe, and two options, `lora` and `chat`."""
    if unknown := [k for k in options if k not in ("lora", "chat")]:
        raise ConfigError(
            f"the embedded trainer has no option {', '.join(unknown)}; remove it from [trainer.options] (there are "
            "lora and chat)"
        )
    _chat(options)
    if (lora := _lora(options)) and lora.dropout:
        raise ConfigError("trainer.options.lora.dropout: the embedded trainer's adapters have none; remove it")
    if lora and any(r.start for r in recipes):
        raise ConfigError("recipe.start goes on from whole weights; remove it, or trainer.options.lora")


def _chat(options: Mapping[str, object]) -> Chat:
    chat = options.get("chat", "auto")
    if chat == "auto" or isinstance(chat, bool):
        return chat
    raise ConfigError(f"trainer.options.chat={chat!r}; set it to auto, true or false")


def _lora(options: Mapping[str, Any]) -> Lora | None:
    if "lora" not in options:
        return None
    lora = parsed(Lora, options["lora"], "trainer.options.lora")
    if lora.targets != "all-linear" and (unknown := [t for t in lora.targets if t not in MODULES]):
        raise ConfigError(f"trainer.options.lora.targets: no {unknown[0]}; there are {', '.join(MODULES)}")
    return lora


def check_trial(
    base: Path | None, options: Mapping[str, Any], recipes: Sequence[Recipe], environment: TrainerEnvironment
) -> list[str]:
    """The policy loads, and its chat template carries the turns; the recipes are all carried out."""
    if base is None:
        return []
    from evotrainer.trainers.chat import notes_of_turns
    from evotrainer.trainers.embedded.folder import load_policy
    from evotrainer.trainers.embedded.tokenizer import ChatTokenizer

    tokenizer = load_policy(base, chat=conversational(environment) and _chat(options)).tokenizer
    several = any(r.max_turns > 1 for r in recipes)
    return notes_of_turns(tokenizer, base, several) if isinstance(tokenizer, ChatTokenizer) else []


def warm_start(request: WarmStartRequest, on_step: Callable[[dict[str, float]], None]) -> None:
    """A small policy with the environment's own vocabulary."""
    from evotrainer.trainers.embedded.warmstart import warm_start as train

    train(request, on_step)


def check_warm_start(request: WarmStartRequest) -> None:
    """Each demonstration, with what begins and ends its parts, fits into the context."""
    from evotrainer.trainers.embedded.tokenizer import build_tokenizer

    tokenizer, context = build_tokenizer(request.words, request.vocabulary), request.shape["context"]
    if (longest := max(sum(len(tokenizer.encode(part)) + 1 for part in text) for text in request.texts)) > context:
        raise ConfigError(
            f"policy.warm_start.shape.context={context} is shorter than a demonstration of {longest} tokens; raise it, "
            "or shorten the demonstrations"
        )


def room(
    policy: Path | WarmStartRequest, options: Mapping[str, Any], prompts: Sequence[Sequence[Turn]]
) -> tuple[list[int], int]:
    """By the policy's own vocabulary."""
    from evotrainer.trainers.embedded.shape import DecoderShape
    from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer, build_tokenizer, load_tokenizer

    if isinstance(policy, WarmStartRequest):
        tokenizer: PolicyTokenizer = build_tokenizer(policy.words, policy.vocabulary)
        context = policy.shape["context"]
    else:
        tokenizer, context = load_tokenizer(policy, _chat(options)), DecoderShape.of(policy).context
    return [len(tokenizer.prompt(p)) for p in prompts], context


def merge(policy: Path, out: Path) -> str:
    """Write the whole model of an adapter folder, with its tokenizer, without peft; its base's id or path. TrainerError
    for what is not plain LoRA."""
    from evotrainer.trainers.bases import base_of, is_adapter, noted
    from evotrainer.trainers.embedded.folder import load_policy, save_policy

    loaded = load_policy(policy)
    save_policy(loaded.policy, loaded.tokenizer, out)
    name = ""
    while is_adapter(policy):
        name, policy = noted(policy)[0], base_of(policy)
    return name


SPEC = TrainerSpec(
    make=make,
    libraries=("torch", "safetensors", "tokenizers"),
    remedy=f"pip install torch==2.13.0, then {install('local')}",
    check=check,
    check_trial=check_trial,
    warm_start=warm_start,
    check_warm_start=check_warm_start,
    room=room,
    merge=merge,
)
