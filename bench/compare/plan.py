"""What a comparison is of, and the folder that holds it: the same command goes on where it was stopped."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import Field, ValidationError

from bench.compare.surface import Surface
from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError, StoreError
from evotrainer.executors.spec import write_atomic
from evotrainer.records.frozen import Frozen, explain
from evotrainer.records.regular_file import read_text

FILE = "comparison.json"


class ComparePlan(Frozen):
    """One comparison. Arms and repeats may grow when it is called again; the rest is what its numbers are of."""

    task: str
    """Hash of the resolved task file."""
    name: str
    arms: tuple[str, ...]
    repeats: int = Field(ge=1)
    trainings: int = Field(ge=1)
    """Trainings of each repeat of an arm, those of the proof apart."""
    fresh: int = Field(3, ge=2)
    """Fresh seeds of the proof."""
    points: int = Field(1, ge=1)
    """Places along the trainings at which an arm's choice of the moment is proved; 1: the end alone."""
    surface: str = ""
    """Hash of the surfaces; empty: real trainings."""


FIXED = {"task": "task file or overrides", "trainings": "--trainings", "fresh": "--fresh", "surface": "--surface"}
"""What may not differ -> what the command line calls it."""


def surface_hash(surfaces: list[Surface]) -> str:
    """16 hex digits; empty without a surface."""
    text = "\n".join(s.model_dump_json() for s in surfaces)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if surfaces else ""


def make_plan(
    task: TaskFile, arms: list[str], repeats: int, trainings: int, fresh: int, points: int, surfaces: list[Surface]
) -> ComparePlan:
    """ConfigError, in a line, for what does not fit."""
    try:
        return ComparePlan(
            task=task.hash,
            name=task.task.name,
            arms=tuple(arms),
            repeats=repeats,
            trainings=trainings,
            fresh=fresh,
            points=points,
            surface=surface_hash(surfaces),
        )
    except ValidationError as e:
        raise ConfigError(f"--{explain(e)}") from None


def open_plan(out: Path, plan: ComparePlan) -> ComparePlan:
    """The folder's plan, which this one may extend by arms and repeats; ConfigError where it is of something else."""
    path = out / FILE
    if not path.is_file():
        if out.is_dir() and any(out.iterdir()):
            raise ConfigError(f"{out} is not empty and holds no comparison; choose another --out")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StoreError(f"cannot make folder {out}: {e.strerror}; choose another --out") from None
        write_atomic(path, plan.model_dump_json(indent=1))
        return plan
    try:
        was = ComparePlan.model_validate_json(read_text(path))
    except (OSError, ValidationError):
        raise ConfigError(f"{path} is damaged; restore it, or choose another --out") from None
    for name, said in FIXED.items():
        if getattr(was, name) != getattr(plan, name):
            raise ConfigError(
                f"{out} holds another comparison: {said} differ ({getattr(was, name)} there, "
                f"{getattr(plan, name)} now); give the same, or choose another --out"
            )
    both = (*was.arms, *(a for a in plan.arms if a not in was.arms))
    now = plan.model_copy(update={"arms": both, "repeats": max(was.repeats, plan.repeats)})
    if now != was:
        write_atomic(path, now.model_dump_json(indent=1))
    return now
