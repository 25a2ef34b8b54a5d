"""The trainer contract. A trainer knows records, never `envs`: it meets environments through `TrainerEnvironment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

from evotrainer.factors.table import TrainerSupport
from evotrainer.records.hooks import HookCaller
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.trainers.schedule import seed_of


class TrainerEnvironment(Protocol):
    """What a trainer needs of an environment; `envs.base.Environment` fits."""

    components: Mapping[str, str]

    def tasks(self, split: str) -> Sequence[Any]: ...

    def reset(self, task: Any, knobs: Mapping[str, Any]) -> Any: ...

    def step(self, episodes: Sequence[Any], actions: Sequence[str], finishes: Sequence[Any]) -> None: ...

    def score(self, episodes: Sequence[Any]) -> list[Any]: ...

    def demonstrations(self, n: int, seed: int) -> Sequence[tuple[str, ...]]: ...

    def describe(self) -> dict[str, Any]: ...


def conversational(environment: TrainerEnvironment) -> bool:
    """Are its prompts messages? False: text, which reaches the policy without a chat template."""
    return bool(getattr(environment, "conversational", True))


@runtime_checkable
class GivesReferences(Protocol):
    """One that has references of its train problems; `envs.base.EnvironmentWithReferences` fits."""

    def references(self, tasks: Sequence[Any], knobs: Mapping[str, Any]) -> Sequence[tuple[str, ...] | None]: ...


@runtime_checkable
class GivesWordings(Protocol):
    """One that can ask its train problems in other words; `envs.base.EnvironmentWithWordings` fits."""

    def reworded(self, task: Any, rng: Random) -> Any: ...


@runtime_checkable
class HasSlots(Protocol):
    """One whose texts around a task may be others; `envs.base.EnvironmentWithSlots` fits."""

    def use_scaffold(self, scaffold: Mapping[str, str]) -> None: ...


def installed(library: str) -> bool:
    """Whether a library could be imported."""
    try:
        # find_spec imports nothing: torch alone takes seconds, which `--help` and a config check must not pay
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False


RolloutSink = Callable[[Sequence[Sequence[Rollout]]], None]
"""Takes the groups of a step, or of an evaluation, and returns once they are durable."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Where rollouts come from; goes into their ids."""

    run: str
    branch: str
    seed: int


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """One seeded training of a recipe from a start policy."""

    identity: Identity
    recipe: Recipe
    policy_dir: Path
    """Start policy, as `save_policy` wrote it."""
    work_dir: Path
    """Checkpoints live here; a request that finds one continues from it, to bit-identical weights."""
    checkpoint_every: int = 5
    """Steps."""
    run_dir: Path | None = None
    """Folder that may move as a whole: what lies in it is named relative to the policy, not by this machine's path."""
    before: int = 0
    """Steps that the recipes before this one trained (`Recipe.start`): its rollouts are counted on from there, the
    curve is not; `policy_dir` is theirs."""
    hooks: HookCaller | None = None
    """Runs the recipe's hooks in the sandbox; None: there are none, or the trainer has to refuse them."""
    unpayable: tuple[str, ...] = ()
    """Reward components that hooks are not shown: the outcome, and what derives from it."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """`[environment]` of the task file, for one that is played by another process as well."""
    accept_tier_e: bool = False
    """`sandbox.accept_tier_e` of the task file."""
    cpu_s: float | None = None
    """CPU-seconds that it may use; None: no limit. Whoever asks enforces it, between steps."""
    watch: Callable[[int, float | None], None] = lambda step, reward: None
    """Told of a step while it is made by somebody else, before `on_step` is: (step from the base policy on, reward)."""

    @property
    def draws(self) -> int:
        """Seed of all random numbers: what goes on draws other tasks and samples than what came before."""
        return seed_of(self.identity.seed, "after", self.before) if self.before else self.identity.seed


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """Sample `attempts` rollouts for each task under the recipe's sampling factors and score them."""

    identity: Identity
    recipe: Recipe
    """Read in its fields of attempts alone (`Recipe.of_attempts`): a run gives no others."""
    policy_dir: Path
    split: str
    step: int
    """Training step of the policy; goes into rollout ids."""
    attempts: int
    tasks: int | None = None
    """First n tasks of the split; None: all."""
    greedy: bool = False
    """Decode greedily; the rollouts are stored under `records.rollout.greedy_split`."""
    env_knobs: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of the recipe's environment knobs (counterfactual audits)."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    steps: int
    policy_dir: Path
    curve: list[dict[str, float]]
    """One dict per step: step, reward, score, frac_reward_zero_std, dead_fail, dead_pass, entropy, kl, grad_norm,
    completions/mean_length, completions/clipped_ratio, kept_groups, cpu_s, ..."""
    resumed: bool


class Trainer(Protocol):
    """Conformance is tested with `evotrainer.testing.check_trainer`."""

    name: str

    def train(
        self,
        request: TrainRequest,
        environment: TrainerEnvironment,
        sink: RolloutSink,
        on_step: Callable[[dict[str, float]], None],
    ) -> TrainResult:
        """Train; `sink` gets all groups of a step before `on_step` gets its curve entry."""
        ...

    def evaluate(self, request: EvalRequest, environment: TrainerEnvironment, sink: RolloutSink) -> list[list[Rollout]]:
        """A group of `attempts` rollouts per task, in task order; `sink` gets them as well."""
        ...

    def policy_sha256(self, policy_dir: Path) -> str:
        """SHA-256 of the weights."""
        ...


SamplerDtype = Literal["fp32", "bf16"]
"""Numbers that sampling computes in."""


@dataclass(frozen=True, slots=True)
class WarmStartRequest:
    """Supervised training on texts: of a policy from scratch, or of the one in `start`."""

    texts: Sequence[tuple[str, ...]]
    """Prompt, action, observation, action, ...; the loss is on the actions."""
    words: Sequence[str]
    """Multi-character tokens of the vocabulary."""
    vocabulary: str
    """The vocabulary's name."""
    shape: dict[str, int]
    """Sizes: d, layers, heads, kv_heads, hidden, context."""
    steps: int
    batch: int
    lr: float
    seed: int
    out_dir: Path
    start: Path | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the stored weights."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """`[trainer.options]`."""


def _nothing_to_check(options: Mapping[str, Any], recipes: Sequence[Recipe], sampler: str) -> None:
    pass


CheckTrial = Callable[[Path | None, Mapping[str, Any], Sequence[Recipe], TrainerEnvironment], list[str]]
"""(base policy's folder, None for one from scratch; options; recipes; environment) -> notes for the reader."""


Room = Callable[[Path | WarmStartRequest, Mapping[str, Any], Sequence[Sequence[Turn]]], tuple[list[int], int]]
"""(policy, or what one from scratch is made of; options; what episodes begin with) -> (tokens of each, tokens that the
policy can hold)."""


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """What a run has to know of a trainer before and besides training; its functions import libraries when called."""

    make: Callable[[SamplerDtype, Mapping[str, Any]], Trainer]
    """(sampling's numbers, `[trainer.options]`) -> the trainer; ConfigError for an option that it does not take."""
    libraries: tuple[str, ...] = ()
    """Modules without which it cannot train."""
    remedy: str = ""
    """How to install them."""
    carries: Mapping[str, TrainerSupport] = field(default_factory=dict)
    """Factor -> how it carries it out, where the table of factors does not say: a recipe that sets any other one away
    from its default is refused."""
    check: Callable[[Mapping[str, Any], Sequence[Recipe], str], None] = _nothing_to_check
    """(options, recipes, sampling's numbers): ConfigError names what it cannot carry out; loads nothing heavy."""
    check_trial: CheckTrial | None = None
    """Raises what a first trial would raise for files and configuration; its trainings begin with the same check."""
    dry_run: Callable[[Mapping[str, Any], TrainRequest, TrainerEnvironment], None] | None = None
    """(options, first training, environment): the trainer's own check of it, which trains nothing."""
    warm_start: Callable[[WarmStartRequest, Callable[[dict[str, float]], None]], None] | None = None
    """Trains a policy from scratch and saves it; None: `policy.base` must name one."""
    check_warm_start: Callable[[WarmStartRequest], None] | None = None
    """Raises what it would raise for its texts."""
    room: Room | None = None
    """Loads a tokenizer, no weights. None: only a training can tell."""
    repeatable: bool = True
    """Do equal requests give equal results, to the bit, as far as our own sources and libraries are the same? Only then
    may they come from the cache of trials."""
    resumable: tuple[str, ...] = ()
    """Options that change neither what is trained nor how it is scored: a resume may set them anew."""
    places: tuple[str, ...] = ()
    """Options that say where a training's results are: a resume may set them anew while no training has finished."""
    merge: Callable[[Path, Path], str] | None = None
    """(adapter's folder, where to write the whole model) -> base model's id or path; None: it makes no adapters."""
