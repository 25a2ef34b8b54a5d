"""verl's own virtual environment: where it is, how it is made, how a script is run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from evotrainer import __version__
from evotrainer.errors import ConfigError, MissingDependencyError
from evotrainer.extras.verl import VERSION
from evotrainer.records.durable import replace_synced

ENVIRONMENT = "EVOTRAINER_VERL_PYTHON"
FOLDER = ".venv-verl"
RECORD = "evotrainer-verl.json"
"""Written into the environment by `setup`: what was installed, when, how long it took."""
CPU_PACKAGES = (
    "torch==2.13.0",
    f"verl=={VERSION}",
    "TransferQueue>=0.1.10,<0.2",
    "cachetools",
    "fastapi",
    "uvicorn",
    "pyzmq",
    "msgspec",
)
"""Composes, validates and loads the plug-ins; verl's own wheel does not name the last six."""
GPU_PACKAGES = (f"verl[vllm]=={VERSION}", "TransferQueue>=0.1.10,<0.2", "msgspec")
"""verl's own choice of torch and vLLM."""
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


def find(venv: Path | None) -> Venv:
    """verl's environment; MissingDependencyError says how to make it."""
    python = candidate(venv)
    if not python.is_file():
        raise MissingDependencyError(
            f"no verl environment: {python} is not there; make one with `evotrainer verl setup`, "
            f"or name one with --venv DIR or {ENVIRONMENT}=path/to/python"
        )
    found = probe(python)
    if not found.ready:
        have = ", ".join(f"{n} {v}" for n, v in found.versions.items() if v) or "none of it"
        raise MissingDependencyError(
            f"{python} lacks what verl {VERSION} needs here (it has {have}); run `evotrainer verl setup --venv "
            f"{python.parent.parent}`"
        )
    return found


def probe(python: Path) -> Venv:
    """Versions in an environment, read from its metadata; nothing of it is imported."""
    try:
        done = subprocess.run([python, "-I", "-c", _PROBE], capture_output=True, text=True, check=True)
        return Venv(Path(os.path.abspath(python)), json.loads(done.stdout))
    except (OSError, subprocess.CalledProcessError, ValueError) as e:
        raise MissingDependencyError(f"{python} does not run: {e}; make it anew with `evotrainer verl setup`") from None


def own_requirement() -> list[str]:
    """What to install of ourselves: the source tree we run from, else the released version."""
    root = Path(__file__).resolve().parents[4]
    if (root / "pyproject.toml").is_file() and (root / "src" / "evotrainer").is_dir():
        return ["--editable", str(root)]
    return [f"evotrainer=={__version__}"]


def extras_of(environment: str) -> list[str]:
    """Libraries beyond the core that grading in this environment needs, as our own extras name them."""
    if environment != "math":
        return []
    marker = 'extra == "math"'
    found = metadata.requires("evotrainer") or []
    return [r.split(";")[0].strip() for r in found if marker in r.replace("'", '"')]


def setup(
    venv: Path, *, gpu: bool, python: Path | None, extra: Sequence[str], pip: Sequence[str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Make or complete the environment; returns its record. ConfigError where pip fails, with its last lines."""
    began = time.monotonic()
    target = venv / "bin" / "python"
    if not target.exists():
        say(f"making {venv}")
        _run([str(python or sys.executable), "-m", "venv", str(venv)], say)
    packages = [*(GPU_PACKAGES if gpu else CPU_PACKAGES), *extra]
    say("installing " + " ".join([*packages, *own_requirement()]))
    _run([str(target), "-m", "pip", "install", "--no-input", *pip, *packages, *own_requirement()], say)
    found = probe(target)
    if not found.ready:
        raise ConfigError(
            f"{venv} is still not complete after the installation: {found.versions}; remove it and try again"
        )
    record = {
        "verl": VERSION,
        "gpu": gpu,
        "versions": found.versions,
        "packages": packages,
        "seconds": round(time.monotonic() - began, 1),
        "megabytes": round(sum(f.lstat().st_size for f in venv.rglob("*") if f.is_file() and not f.is_symlink()) / 1e6),
    }
    replace_synced(venv / RECORD, json.dumps(record, indent=1).encode())
    return record


def _run(command: Sequence[str], say: Callable[[str], None]) -> None:
    """Run a command, passing on each line of output; ConfigError with the last lines where it fails."""
    lines: list[str] = []
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.startswith(("Collecting", "Downloading", "Installing", "Successfully", "ERROR")):
                    say(line.rstrip()[:200])
    except OSError as e:
        raise ConfigError(f"{command[0]} does not run: {e}; give another Python with --python") from None
    if process.returncode:
        why = " | ".join(x for x in lines[-4:] if x)
        raise ConfigError(
            f"{' '.join(command[:4])} failed with exit code {process.returncode}: {why}; mend that and run it again"
        )


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
