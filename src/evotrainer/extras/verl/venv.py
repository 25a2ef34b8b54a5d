"""verl's own virtual environment: where it is, what it has, how a script is run in it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.errors import MissingDependencyError, install
from evotrainer.extras.verl import VERSION

ENVIRONMENT = "EVOTRAINER_VERL_PYTHON"
FOLDER = ".venv-verl"
_PROBE = """
import importlib.metadata as m, json
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
names = ("verl", "torch", "ray", "transformers", "vllm", "sglang", "TransferQueue", "hydra-core", "evotrainer")
print(json.dumps({n: version(n) for n in names}))
"""


@dataclass(frozen=True, slots=True)
class Venv:
    """A Python that has verl."""

    python: Path
    versions: dict[str, str | None]

    @property
    def ready(self) -> bool:
        """Whether validation can run in it."""
        v = self.versions
        return v["verl"] == VERSION and all(v[n] for n in ("torch", "TransferQueue", "evotrainer"))


def candidate(venv: Path | None) -> Path:
    """The Python of the environment that is meant: `venv`, $EVOTRAINER_VERL_PYTHON, or .venv-verl here."""
    if venv is not None:
        return venv / "bin" / "python"
    if named := os.environ.get(ENVIRONMENT):
        return Path(named)
    return Path(FOLDER) / "bin" / "python"


def how_to_make(folder: Path) -> str:
    """The command that makes an environment for validation."""
    return f"python -m venv {folder} && {folder}/bin/{install('verl')}"


def find(venv: Path | None) -> Venv:
    """verl's environment; MissingDependencyError says how to make it."""
    python = candidate(venv)
    if not python.is_file():
        raise MissingDependencyError(
            f"no verl environment: {python} is not there; make one: {how_to_make(python.parent.parent)}; or name one "
            f"with --venv DIR or {ENVIRONMENT}=path/to/python"
        )
    found = probe(python)
    if not found.ready:
        have = ", ".join(f"{n} {v}" for n, v in found.versions.items() if v) or "none of it"
        raise MissingDependencyError(
            f"{python} lacks what verl {VERSION} needs here (it has {have}); run {python.parent}/{install('verl')}"
        )
    return found


def probe(python: Path) -> Venv:
    """Versions in an environment, read from its metadata; nothing of it is imported."""
    try:
        done = subprocess.run([python, "-I", "-c", _PROBE], capture_output=True, text=True, check=True)
        return Venv(Path(os.path.abspath(python)), json.loads(done.stdout))
    except (OSError, subprocess.CalledProcessError, ValueError) as e:
        raise MissingDependencyError(
            f"{python} does not run: {e}; make it anew: {how_to_make(python.parent.parent)}"
        ) from None


def script(name: str) -> Path:
    """A script of `inside/`, to be run by verl's Python."""
    return Path(__file__).parent / "inside" / name


def last_json(output: str) -> dict[str, Any] | None:
    """The JSON object on the last line that holds one; libraries print around it."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return None
