"""A task file as a folder that verl trains from: configuration, prompts, plug-ins, launch script,
manifest with hashes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer import __version__
from evotrainer.config.task import NotifyConfig, TaskFile
from evotrainer.errors import ConfigError
from evotrainer.extras.verl import VERSION
from evotrainer.extras.verl.configuration import Machine, configuration
from evotrainer.extras.verl.folder import CONFIG, FORMAT, MANIFEST
from evotrainer.extras.verl.mapping import plugins_of
from evotrainer.records.durable import replace_synced, sha256_file

if TYPE_CHECKING:
    from evotrainer.envs.base import Environment

SPLITS = {"train": "train", "search": "validation"}
"""Splits that verl gets to see, and what it uses them for. Gate and cert are the judge's."""


def model_of(task: TaskFile, wanted: str | None) -> str:
    """The model to train; ConfigError where the task file names none that verl can load."""
    model = wanted or task.policy.base
    if model == "warm-start" or model.startswith("builtin:"):
        raise ConfigError(
            f"policy.base = {model!r} is a policy of the embedded trainer; name a model for verl: "
            "--model ORG/NAME or a folder"
        )
    here = Path(model).expanduser()
    if model.startswith((".", "/", "~")) and not here.exists():
        raise ConfigError(
            f"model {model!r}: there is no such folder; correct the path, or name a Hugging Face id ORG/NAME"
        )
    return str(here.resolve()) if here.exists() else model


def render(task: TaskFile, out: Path, machine: Machine) -> dict[str, Any]:
    """Write the folder and return its manifest.

    Raises ConfigError where verl cannot be given the recipe, the environment or a setting, or `out` is in use.
    """
    from evotrainer.config.preflight import fingerprints

    recipe = task.recipe
    folder = out.resolve()
    if machine.attention not in ("flash_attention_2", "sdpa"):
        raise ConfigError(f"--attention {machine.attention}: choose flash_attention_2 or sdpa")
    if machine.engine not in ("vllm", "sglang"):
        raise ConfigError(f"--engine {machine.engine}: choose vllm or sglang")
    keys, origin = configuration(task, folder, machine)  # refusals first: they cost nothing
    _check_free(out)
    rows, described = _prompts(task)
    _clear(folder)
    _write_files(task, folder, keys, rows)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    longest = max(sum(len(m["content"]) for m in row["prompt"]) for r in rows.values() for row in r)
    manifest = {
        "format": FORMAT,
        "evotrainer": __version__,
        "verl": VERSION,
        "folder": str(folder),
        "task": task.task.name,
        "task_hash": task.hash,
        "recipe_hash": recipe.hash,
        "environment": {"name": described["name"], "hash": described.get("hash", "")},
        "environment_files": fingerprints(task.named_files),
        "model": machine.model,
        "gpus": machine.gpus,
        "nodes": machine.nodes,
        "steps": recipe.steps,
        "tasks": {split: len(r) for split, r in rows.items()},
        "longest_prompt_characters": longest,
        "factors": origin,
        "plugins": list(plugins_of(recipe)),
        "files": {str(p.relative_to(folder)): sha256_file(p) for p in files},
    }
    replace_synced(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def _prompts(task: TaskFile) -> tuple[dict[str, list[dict[str, Any]]], Mapping[str, Any]]:
    """(rows of each of SPLITS, the environment's description); ConfigError where verl could not train on them."""
    from evotrainer.envs import open_environment, pay_terms
    from evotrainer.factors.change_rules import refuse_start

    recipe = task.recipe
    environment = open_environment(task.environment, accept_tier_e=task.sandbox.accept_tier_e)
    try:
        if hasattr(environment, "environment_factory"):
            raise ConfigError(
                f"environment {environment.name} is played by TRL's own loop, which verl does not have; "
                'train it by `evotrainer run` with trainer.name = "trl"'
            )
        offers = {"name": environment.name, "components": environment.components, "knobs": environment.knobs}
        refuse_start(recipe, {**offers, **pay_terms(environment, task.environment)})
        rows = {split: list(_rows(environment, task, split)) for split in SPLITS}
        described = environment.describe()
    finally:
        environment.close()
    if len(rows["train"]) < recipe.prompts_per_step:
        raise ConfigError(
            f"the train split has {len(rows['train'])} tasks, fewer than recipe.prompts_per_step = "
            f"{recipe.prompts_per_step}: verl would never fill a batch; lower it or add tasks"
        )
    if not rows["search"]:
        raise ConfigError(
            f"environment {environment.name} has no tasks in split search, which verl validates on; add some"
        )
    return rows, described


def _write_files(
    task: TaskFile, folder: Path, keys: Mapping[str, Any], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Everything but the manifest."""
    for name in ("plugins", "data"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        _write_parquet(folder / "data" / f"{split}.parquet", rows[split])
    # without the address of [notify], which is a secret
    (folder / "task.toml").write_text(task.model_copy(update={"notify": NotifyConfig()}).to_toml(), encoding="utf-8")
    (folder / "recipe.json").write_text(task.recipe.canonical(), encoding="utf-8")
    source = Path(__file__).parent / "plugins"
    for name in plugins_of(task.recipe):
        shutil.copyfile(source / name, folder / "plugins" / name)
    (folder / CONFIG).write_text(_yaml(folder, keys), encoding="utf-8")
    script = folder / "launch.sh"
    script.write_text(_script(folder), encoding="utf-8")
    os.chmod(script, 0o755)


def _check_free(out: Path) -> None:
    """An empty or new folder, or one that was rendered and never launched."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{out} is a file; choose a new folder")
    if not any(out.iterdir()):
        return
    if not (out / MANIFEST).is_file():
        raise ConfigError(f"{out} is not empty and was not rendered by us; choose a new folder")
    if (out / "metrics").exists():
        raise ConfigError(
            f"{out} holds a training that was launched; render to a new folder, nothing of it is overwritten"
        )


def _clear(out: Path) -> None:
    """Remove an earlier rendering, manifest first: a half-written folder is no rendered one."""
    (out / MANIFEST).unlink(missing_ok=True)
    for name in ("plugins", "data"):
        shutil.rmtree(out / name, ignore_errors=True)


def _rows(environment: Environment, task: TaskFile, split: str) -> Iterator[dict[str, Any]]:
    """verl's row for every task: the conversation as the environment opens it;
    the ground truth is the task's id, grading looks the rest up."""
    tasks = environment.tasks(split)
    if split == "search" and task.evaluation.search_tasks:
        tasks = tasks[: task.evaluation.search_tasks]
    for i, t in enumerate(tasks):
        episode = environment.reset(t, task.recipe.knobs)
        yield {
            "data_source": f"evotrainer/{environment.name}",
            "prompt": [{"role": turn.role, "content": turn.text} for turn in episode.turns],
            "ability": t.tags.get("kind", environment.name),
            "reward_model": {"style": "rule", "ground_truth": t.id},
            "extra_info": {"index": i, "split": split, "task": t.id},
        }


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema(
        [
            ("data_source", text),
            ("prompt", pa.list_(pa.struct([("role", text), ("content", text)]))),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
            ("extra_info", pa.struct([("index", pa.int64()), ("split", text), ("task", text)])),
        ]
    )
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as a tree."""
    out: dict[str, Any] = {}
    for key, value in keys.items():
        *path, last = key.split(".")
        node = out
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return out


def _yaml(folder: Path, keys: Mapping[str, Any]) -> str:
    """A Hydra configuration on top of verl's own `ppo_trainer`."""
    import yaml

    head = {
        "hydra": {
            "searchpath": ["pkg://verl.trainer.config"],
            "run": {"dir": str(folder / "hydra")},
            "output_subdir": None,
        },
        "defaults": ["ppo_trainer", "_self_"],
    }
    about = (
        f"# verl {VERSION}, rendered by EvoTrainer {__version__}. Change the task file and render again; "
        "hashes are checked.\n"
    )
    return about + yaml.safe_dump({**head, **nested(keys)}, sort_keys=False, allow_unicode=True, width=120)


def _script(folder: Path) -> str:
    """Runs verl in the foreground with this folder's plug-ins. Each start is an attempt with files of its own: verl's
    file logger empties the file that it opens, and its dumps overwrite a step's."""
    here = shlex.quote(str(folder))
    return f"""#!/bin/sh
# Trains this folder with verl {VERSION}, or goes on from its last checkpoint:
#   VERL_PYTHON=path/to/verl/venv/bin/python sh launch.sh
# Several nodes: start Ray on each (ray start --head; ray start --address=HEAD:6379), then
#   RAY_ADDRESS=HEAD:6379 sh launch.sh
FOLDER={here}
N=1
while [ -e "$FOLDER/metrics/attempt-$N.jsonl" ]; do N=$((N + 1)); done
export PYTHONPATH="$FOLDER/plugins${{PYTHONPATH:+:$PYTHONPATH}}"
export VERL_USE_EXTERNAL_MODULES=evo_advantage
export VERL_FILE_LOGGER_PATH="$FOLDER/metrics/attempt-$N.jsonl"
export HYDRA_FULL_ERROR=1 PYTHONUNBUFFERED=1
mkdir -p "$FOLDER/metrics" && : > "$VERL_FILE_LOGGER_PATH" && cd "$FOLDER" || exit 2
exec "${{VERL_PYTHON:-python}}" -m verl.trainer.main_ppo --config-path "$FOLDER" --config-name config \\
  "ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH=$VERL_FILE_LOGGER_PATH" \\
  "trainer.rollout_data_dir=$FOLDER/rollouts/attempt-$N" \\
  "trainer.validation_data_dir=$FOLDER/validation/attempt-$N" "$@"
"""
