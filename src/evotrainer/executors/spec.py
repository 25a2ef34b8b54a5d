"""The specification and the results of a trial, as files in its folder, so that any executor can run it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from evotrainer.config.task import WarmStart
from evotrainer.errors import StoreError
from evotrainer.records.frozen import Frozen, explain
from evotrainer.records.recipe import Recipe
from evotrainer.records.regular_file import read_text
from evotrainer.records.sealed import SealedSplits


class EvalPlan(Frozen):
    """One evaluation after training."""

    split: Literal["train", "search", "gate", "cert", "guard"]
    """Under which name it is recorded; guard: `of` a guard's environment."""
    attempts: int
    tasks: int | None = None
    greedy: bool = False
    """Read a second time, by greedy decoding, one attempt per task."""
    of: Literal["", "train", "search", "gate", "cert"] = ""
    """Split of the environment whose tasks are read; empty: `split` itself."""
    draw: str = ""
    """Name of the seed that the run drew the split's tasks from (`records/sealed.py`); empty: the environment's own.
    Never the seed itself: whoever reads a specification could make the tasks."""

    @property
    def sealed(self) -> bool:
        """Only the judge may read it before the run closes."""
        return SealedSplits.covers(self.split)


class TrialSpec(Frozen):
    """One seeded training (`train`), or only the evaluation of a policy (`evaluate`), in its own process."""

    run: str
    trial: str
    branch: str
    seed: int
    purpose: Literal["base", "noise", "branch", "confirm", "audit", "certify", "probe", "guard"]
    train: bool
    recipe: Recipe
    protocol: Recipe
    """What evaluations sample under: the branch's rewards, but the run's own temperature, lengths and knobs."""
    environment: dict[str, Any]
    policy_dir: str
    """Start policy; relative paths are relative to the run folder. Empty: warm start first."""
    warm_start: WarmStart | None = None
    evals: tuple[EvalPlan, ...] = ()
    env_knobs: dict[str, Any] = {}
    """Environment knobs of the evaluations, over the protocol's (counterfactual audits)."""
    policy_step: int = 0
    """Training steps of the policy that is only evaluated."""
    checkpoint_every: int = 5
    health_every: int = 0
    """Steps between two readings of the training by the harness; 0: none, also not of the evaluations."""
    harness: dict[str, Any] = {}
    """The harness version that reads the trial, whole; empty: h0."""
    cpu_limit_s: float | None = None
    accept_tier_e: bool = False
    sampler_dtype: Literal["fp32", "bf16"] = "fp32"
    """Numbers that sampling computes in; the update computes in fp32 either way."""
    key: str = ""
    """Name of the key that gate and cert are encrypted with, which the trial is handed when it starts; empty: they are
    not. Never the key itself."""
    trainer: str = "embedded"
    trainer_options: dict[str, Any] = {}


class Heartbeat(Frozen):
    """Replaced at every step of a trial."""

    pid: int
    step: int
    steps: int
    phase: str
    cpu_s: float
    """CPU-seconds of all processes of the trial so far, earlier attempts included."""
    time: float
    """Unix seconds."""
    gpu_s: float = 0.0
    """GPU-seconds so far, earlier attempts included."""
    score: float | None = None


def trial_dir(run_dir: Path, trial: str) -> Path:
    return run_dir / "trials" / trial


def store_dirs(run_dir: Path, trial: str) -> tuple[Path, ...]:
    """A trial's stores: of its open splits, of its sealed ones."""
    return tuple(run_dir / kind / trial for kind in SealedSplits.STORES)


def write_atomic(path: Path, text: str, *, durable: bool = True) -> None:
    """Write through a temporary file and a rename: readers see the old or the new text, never half of it."""
    tmp = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(tmp, "w", encoding="utf-8") as f:
            f.write(text)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        os.replace(tmp, path)
    except OSError as e:
        raise StoreError(f"cannot write {path}: {e.strerror}; free space or fix permissions, then resume") from e
    if durable:
        fd = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """The last heartbeat, None where there is none or it is unreadable."""
    try:
        return Heartbeat.model_validate_json(read_text(folder / "heartbeat"))
    except (OSError, ValidationError):
        return None


def read_spec(folder: Path) -> TrialSpec:
    """The trial's specification; StoreError where it is missing or damaged."""
    p = folder / "spec.json"
    try:
        return TrialSpec.model_validate(json.loads(read_text(p)))
    except (OSError, ValueError) as e:
        why = explain(e) if isinstance(e, ValidationError) else str(e)
        raise StoreError(f"{p} is missing or damaged: {why}") from None
