"""What a run is checked against when it opens and when it is taken up again: recipe, files, base policy, machine."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evotrainer.config.task import default_workers
from evotrainer.errors import ConfigError
from evotrainer.records.durable import sha256_file
from evotrainer.records.recipe import Recipe

DATA = re.compile(r"\.(?:jsonl|json|csv)(?:\.gz)?$|\.parquet$")
"""Names of data files in a folder."""


def check_recipe(
    recipe: Recipe, name: str, components: Mapping[str, str], knobs: Mapping[str, Sequence[Any] | str]
) -> None:
    """Reward components, knobs and their values must exist in the environment, of the recipes that it goes on from,
    too; ConfigError lists what there is."""
    if recipe.start is not None:
        check_recipe(recipe.start, name, components, knobs)
    unknown = sorted(recipe.rewards.keys() - components.keys() - recipe.written.keys())
    if unknown:
        raise ConfigError(
            f"unknown reward component {', '.join(unknown)}{_hint(unknown[0], components)}; "
            f"{name} offers: {', '.join(sorted(components))}"
        )
    unknown = sorted(recipe.knobs.keys() - knobs.keys())
    if unknown:
        raise ConfigError(
            f"unknown environment knob {', '.join(unknown)}{_hint(unknown[0], knobs)}; "
            f"{name} has: {', '.join(sorted(knobs)) or 'none'}"
        )
    for knob, values in knobs.items():
        if not isinstance(values, str) and any(", " in str(v) for v in values):
            raise ConfigError(
                f"environment knob {knob} of {name} has a value with a comma and a blank; give it another name"
            )
    for knob, value in recipe.knobs.items():
        allowed = knobs[knob]
        values = allowed.split(", ") if isinstance(allowed, str) else [str(v) for v in allowed]
        if str(value) not in values:
            raise ConfigError(f"knobs.{knob} = {value!r} is not allowed by {name}; one of: {', '.join(values)}")


def _hint(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), 1)
    return f", did you mean {near[0]}?" if near else ""


def fingerprints(environment: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of every file the environment's section names: user modules, data sets, reward files."""
    out: dict[str, str] = {}
    options = [v for k, v in environment.items() if k != "payable"]  # its names are of components, not of files
    for value in [x for v in options for x in (v if isinstance(v, list | tuple) else [v])]:
        if not isinstance(value, str):
            continue
        name = value.removeprefix("python:").removeprefix("trl:").removeprefix("trl-rewards:")
        path = Path(name.split(".py:")[0] + ".py" if ".py:" in name else name)
        if path.is_file():
            out[str(path)] = sha256_file(path)
    folder = Path(str(environment.get("source") or "")).expanduser()
    if environment.get("source") and folder.is_dir():  # a folder of data files, as envs/data/tables.py reads it
        files = (f for place in (folder, folder / "data") if place.is_dir() for f in place.iterdir())
        out |= {str(f): sha256_file(f) for f in sorted(files) if f.is_file() and DATA.search(f.name)}
    return out


def weights_sha256(policy: Path) -> str:
    """SHA-256 of a policy folder's weights; ConfigError where there are none."""
    from evotrainer.records import weights

    if (sha := weights.weights_sha256(policy)) is None:
        raise ConfigError(
            f"policy.base {policy}: no model.safetensors there; give a folder written by `evotrainer base`, "
            "or one that transformers' save_pretrained wrote"
        )
    return sha


def base_identity(base: str, policy: Path | None) -> dict[str, str]:
    """Where the base policy is from, for the ledger: path and SHA-256 of its weights;
    of a Hugging Face id, its commit too."""
    from evotrainer.records.hub import parse_pinned

    if policy is None:
        return {"path": "warm-start"}
    out = {"path": str(policy), "sha256": weights_sha256(policy)}
    if (pinned := parse_pinned(base)) is not None:
        out |= {"id": pinned[0], "commit": pinned[1]}
    return out


def machine() -> dict[str, str]:
    """The machine that the run ran on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": str(default_workers()),
    }
