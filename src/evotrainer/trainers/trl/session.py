"""The state of one training: all that changes between steps but weights and optimizer, and what it is made from."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from evotrainer.algorithm.filters import FilterState
from evotrainer.errors import StoreError, TrainerError
from evotrainer.records.durable import fsync, recover_folder, replace_folder, write_trouble
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.averaging import average_weight
from evotrainer.trainers.base import TrainerEnvironment, TrainRequest
from evotrainer.trainers.chat import ChatCodec
from evotrainer.trainers.clock import PhaseTimer
from evotrainer.trainers.curriculum import TaskStream
from evotrainer.trainers.curve import curve_entry, token_sums
from evotrainer.trainers.groups import Group
from evotrainer.trainers.hooks import StepHooks
from evotrainer.trainers.phases import rare_successes
from evotrainer.trainers.replay import ReplayBuffer
from evotrainer.trainers.rollouts import Attempt, Provenance, environment_facts
from evotrainer.trainers.schedule import learning_rate
from evotrainer.trainers.trl.attempts import Sampler, run_attempts
from evotrainer.trainers.trl.generate import Sampling

CHECKPOINT, WRITING, STATE = "checkpoint", ".trl", "evotrainer.pt"
FORMAT = 1
ANCHOR_DEMOS = 1024
ANCHOR_BATCH = 32


@dataclass(slots=True)
class TrlSftDemonstrations:
    """Demonstrations for the SFT loss, drawn with a seeded generator: (ids, loss mask)."""

    rows: list[tuple[list[int], list[bool]]]
    rng: random.Random

    def draw(self) -> list[tuple[list[int], list[bool]]]:
        return self.rng.sample(self.rows, min(ANCHOR_BATCH, len(self.rows)))


@dataclass(slots=True)
class TrlSession:
    """`save` and `restore` keep what changes."""

    request: TrainRequest
    key: str
    """Identifies request, start policy and options: a checkpoint of another is refused."""
    config: dict[str, Any]
    """GRPOConfig fields."""
    environment: TrainerEnvironment
    tasks: Sequence[Any]
    transcript: ChatCodec
    sampling: Sampling
    context: int
    stream: TaskStream
    clock: PhaseTimer
    anchor: TrlSftDemonstrations | None
    hooks: StepHooks
    replay: ReplayBuffer | None = None
    """Rows of (ids, loss mask)."""
    keep_tokens: bool = True
    filter: FilterState = field(default_factory=FilterState)
    curve: list[dict[str, float]] = field(default_factory=list)
    average: dict[str, torch.Tensor] | None = None
    """Running average of what is trained, by parameter name; process 0 alone keeps it."""
    step: int = 0
    tokens: int = 0

    @property
    def recipe(self) -> Recipe:
        return self.request.recipe

    def attempts(self, sampler: Sampler, plan: Sequence[tuple[Any, range]]) -> list[Attempt]:
        r = self.recipe
        return run_attempts(
            self.environment,
            sampler,
            self.transcript,
            plan,
            r.knobs,
            r.max_tokens,
            r.max_turns,
            self.context,
            self.clock.mark,
        )

    def provenance(self, step: int) -> Provenance:
        step += self.request.before
        env_hash, tier = environment_facts(self.environment.describe())
        return Provenance(
            identity=self.request.identity,
            split="train",
            step=step,
            version=step - 1,
            env_knobs=self.recipe.knobs,
            env_hash=env_hash,
            sandbox_tier=tier,
            keep_tokens=self.keep_tokens,
        )

    def entry(
        self, groups: Sequence[Group], update: Mapping[str, float], trained: int, reference: int
    ) -> dict[str, float]:
        """Count the step; its curve entry. Rare successes are kept now, so that a step replays earlier ones only.

        `trained`, `reference`: tokens of its update (`token_sums`).
        """
        if self.replay is not None:
            found = rare_successes(groups, self.recipe)
            self.replay.add([([*a.prompt, *a.ids], [False] * len(a.prompt) + a.loss) for a in found])
            update = {**update, "replay_kept": float(len(self.replay.rows))}
        self.clock.mark("update")
        self.tokens += sum(len(a.logprobs) for g in groups for a in g.attempts)
        lr = learning_rate(self.recipe.lr, self.recipe.schedule, self.step, self.recipe.steps)
        # after the learning rate, which is that of the step just made (0-based)
        self.step += 1
        entry = curve_entry(self.step, groups, update, self.recipe, lr, self.tokens)
        seconds = self.clock.take()
        for phase in ("sample", "grade", "record", "update"):
            entry[f"cpu_{phase}_s"] = seconds.get(phase, 0.0)
        entry |= self.hooks.figures()
        entry["cpu_s"] = self.clock.total
        entry |= token_sums(self.curve, groups, trained, reference)
        self.curve.append(entry)
        return entry

    @torch.no_grad()
    def take_average(self, model: Any) -> None:
        """Take the trained weights of the step just made into the average."""
        a = average_weight(self.recipe.averaging, self.step, self.recipe.steps)
        if a is None:
            return
        trained = {k: p.detach() for k, p in model.named_parameters() if p.requires_grad}
        before = self.average
        if before is None:
            self.average = {k: p.clone() for k, p in trained.items()}
        else:  # a restored average lies in main memory
            self.average = {k: before[k].to(p.device).lerp_(p, a) for k, p in trained.items()}

    @torch.no_grad()
    def give_average(self, model: Any) -> None:
        """Put the average, where there is one, in the place of the trained weights."""
        if self.average is not None:
            parameters = dict(model.named_parameters())
            for k, mean in self.average.items():
                parameters[k].copy_(mean)

    def save(self, update: int) -> None:
        """Add the session to the checkpoint that transformers wrote, and put it in the place of the last one."""
        folder = self.request.work_dir / CHECKPOINT
        written = self.request.work_dir / WRITING / f"checkpoint-{update}"
        f = self.filter
        state = {
            "format": FORMAT,
            "request": self.key,
            "step": self.step,
            "stream": self.stream.state(),
            "filter": [f.mean, f.var, f.seen],
            "average": self.average,
            "anchor": None if self.anchor is None else self.anchor.rng.getstate(),
            "replay": None if self.replay is None else self.replay.state(),
            "curve": self.curve,
            "tokens": self.tokens,
            "cpu_s": self.clock.total,
        }
        try:
            torch.save(state, written / STATE)
            for file in written.iterdir():
                fsync(file)
            replace_folder(written, folder)
        except (OSError, RuntimeError) as e:
            raise write_trouble(f"checkpoint {folder}", e, folder.parent) from e

    def restore(self) -> Path | None:
        """The last complete checkpoint of this request, taken up; None where there is none.

        TrainerError where it belongs to another request, StoreError where it cannot be read.
        """
        folder = self.request.work_dir / CHECKPOINT
        recover_folder(folder)
        # what a kill left half-written; a checkpoint counts only once it was renamed into place
        shutil.rmtree(self.request.work_dir / WRITING, ignore_errors=True)
        if not (folder / STATE).exists():
            if folder.exists():
                raise TrainerError(
                    f"checkpoint {folder}: not one of the trl trainer; use a fresh work_dir or delete the folder"
                )
            return None
        s = read_state(folder)
        if s["request"] != self.key:
            raise TrainerError(
                f"checkpoint {folder}: belongs to another recipe, seed, start policy or other options; use a fresh "
                "work_dir or delete it"
            )
        self.step, self.tokens, self.curve = s["step"], s["tokens"], s["curve"]
        self.average = s["average"]
        self.stream.load(s["stream"])
        self.filter = FilterState(*s["filter"])
        if self.anchor is not None:
            self.anchor.rng.setstate(s["anchor"])
        if self.replay is not None:
            self.replay.load(s["replay"])
        self.clock.resume(s["cpu_s"])
        return folder


def read_state(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(folder / STATE, weights_only=True, map_location="cpu")
    except Exception as e:  # torch.load raises many types for a damaged file
        raise StoreError(f"checkpoint {folder}: cannot be read ({e}); delete the folder to train from the start") from e
    if state.get("format") != FORMAT:
        raise TrainerError(f"checkpoint {folder}: format {state.get('format')}, expected {FORMAT}; delete the folder")
    return state
