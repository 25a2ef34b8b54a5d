"""`evotrainer verl render`: a task file as verl's configuration, prompts, plug-ins and launch script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from evotrainer.cli._common import Overrides, TaskPath
from evotrainer.errors import ConfigError
from evotrainer.records.output import print
from evotrainer.records.text import counted

Gpus = Annotated[int | None, typer.Option(min=1, help="GPUs per node; default 8.")]
Nodes = Annotated[int | None, typer.Option(min=1, help="Nodes; default 1.")]
Engine = Annotated[str | None, typer.Option(help="Rollout engine: vllm (default) or sglang.")]
TensorParallel = Annotated[int | None, typer.Option(min=1, help="GPUs a rollout replica spans; default 1.")]
MicroBatch = Annotated[int | None, typer.Option(min=1, help="Sequences a GPU holds at once; default 8.")]
PromptTokens = Annotated[int | None, typer.Option(min=1, help="Longest prompt; default 1024.")]
ObservationTokens = Annotated[
    int | None, typer.Option(min=1, help="Room for an observation between two turns; default 512.")
]
Attention = Annotated[
    str | None, typer.Option(help="flash_attention_2 (default, needs flash-attn) or sdpa (needs nothing).")
]
LoraRank = Annotated[int | None, typer.Option(min=0, help="LoRA instead of full training; default 0: full.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Further verl setting key=value, repeatable; not one that a recipe factor sets."),
]


def verl_render(
    task: TaskPath,
    overrides: Overrides = None,
    *,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    model: Annotated[str | None, typer.Option(help="Hugging Face id or folder; default: policy.base.")] = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    engine: Engine = None,
    tensor_parallel: TensorParallel = None,
    micro_batch: MicroBatch = None,
    prompt_tokens: PromptTokens = None,
    observation_tokens: ObservationTokens = None,
    attention: Attention = None,
    lora_rank: LoraRank = None,
    seed: Annotated[int | None, typer.Option(help="Default: the first of run.seeds.")] = None,
    settings: Settings = None,
) -> None:
    """Write a task file as verl's configuration, prompts, plug-ins and launch script.

    Example: evotrainer verl render my-task/task.toml --model Qwen/Qwen2.5-0.5B-Instruct --gpus 8 --out runs/verl
    """
    chosen = {
        "gpus": gpus,
        "nodes": nodes,
        "engine": engine,
        "tensor_parallel": tensor_parallel,
        "micro_batch": micro_batch,
        "prompt_tokens": prompt_tokens,
        "observation_tokens": observation_tokens,
        "attention": attention,
        "lora_rank": lora_rank,
        "seed": seed,
    }
    _render(task, overrides or [], out, model, settings or [], {k: v for k, v in chosen.items() if v is not None})


def _render(
    task: Path, overrides: list[str], out: Path, model: str | None, settings: list[str], chosen: dict[str, Any]
) -> None:
    """Write the folder; print what was written and what to do next."""
    from evotrainer.config.load import load_task
    from evotrainer.extras.verl.configuration import Machine, parse_setting
    from evotrainer.extras.verl.render import model_of, render
    from evotrainer.trainers.gguf import is_gguf

    resolved = load_task(task, overrides)
    if model is None and is_gguf(resolved.policy.base):
        raise ConfigError(f"verl reads no GGUF, and policy.base is {resolved.policy.base}; give --model ORG/NAME")
    if isinstance(lora := resolved.trainer.options.get("lora"), dict):  # its learning rate is one of adapters
        chosen = {"lora_rank": lora.get("r", 16), "lora_alpha": lora.get("alpha"), **chosen}
    every = resolved.run.checkpoint_every
    machine = Machine(
        model_of(resolved, model),
        settings=dict(parse_setting(s) for s in settings),
        **{"seed": resolved.run.seeds[0], "save_every": every, "test_every": every, **chosen},
    )
    m = render(resolved, out, machine)
    plugins = ", ".join(p for p in m["plugins"] if p.endswith(".py"))
    files, nodes, steps = counted(len(m["files"]), "file"), counted(m["nodes"], "node"), counted(m["steps"], "step")
    print(f"{out}: {files} for verl {m['verl']}, recipe {m['recipe_hash']}, task file {m['task_hash']}")
    print(f"  {m['tasks']['train']:,} training and {m['tasks']['search']:,} validation prompts; plug-ins {plugins}")
    print(f"  {counted(m['gpus'], 'GPU')} on each of {nodes}, model {m['model']}, {steps}")
    if m["longest_prompt_characters"] > 3 * machine.prompt_tokens:
        print(
            f"  the longest prompt has {m['longest_prompt_characters']:,} characters: verl leaves out what exceeds "
            f"{machine.prompt_tokens} tokens (--prompt-tokens)"
        )
    print(f"next: evotrainer verl validate {out}")
