"""What a run is checked against when it opens and when it is taken up again: files, base policy, machine."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evotrainer.config.task import TaskFile, default_workers
from evotrainer.errors import ConfigError
from evotrainer.records.durable import sha256_file

DATA = re.compile(r"\.(?:jsonl|json|csv)(?:\.gz)?$|\.parquet$")
"""Names of data files in a folder."""


def fingerprints(environment: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of every file the environment's section names: user modules, data sets, reward files."""
    out: dict[str, str] = {}
    options = [v for k, v in environment.items() if k != "payable"]  # its names are of components, not of files
    values = [x for v in options for x in (v if isinstance(v, list | tuple) else [v]) if isinstance(x, str)]
    for value in values:
        name = value.removeprefix("python:").removeprefix("trl:").removeprefix("trl-rewards:")
        stem, attribute, _ = name.partition(".py:")
        if (path := Path(stem + attribute.rstrip(":"))).is_file():
            out[str(path)] = sha256_file(path)
    folder = Path(str(environment.get("source") or "")).expanduser()
    if environment.get("source") and folder.is_dir():  # a folder of data files, as envs/data/tables.py reads it
        files = sorted([*folder.glob("*"), *folder.glob("data/*")])
        out |= {str(f): sha256_file(f) for f in files if f.is_file() and DATA.search(f.name)}
    return out


def run_fingerprints(task: TaskFile) -> dict[str, str]:
    """The same of all that a task file names: its own environment and command, its guards' environments."""
    named = (task.named_files, *(g.environment for g in task.guard))
    return {f: sha for e in named for f, sha in fingerprints(e).items()}


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
    of a Hugging Face id, its commit too; of a GGUF, the file and its licence."""
    from evotrainer.records.hub import parse_pinned
    from evotrainer.trainers.gguf import gguf_identity, is_gguf

    if policy is None:
        return {"path": "warm-start"}
    out = {"path": str(policy), "sha256": weights_sha256(policy)}
    if (pinned := parse_pinned(base)) is not None:
        out |= {"id": pinned[0], "commit": pinned[1]}
    if is_gguf(base):
        out |= {f"gguf_{k}": v for k, v in gguf_identity(base, policy, out["sha256"]).items()}
    return out


def machine() -> dict[str, str]:
    """The machine that the run ran on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": str(default_workers()),
    }
