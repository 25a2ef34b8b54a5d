"""Trials: intended, finished, and the noise between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from evotrainer.records.findings import HealthReport
from evotrainer.records.frozen import Frozen

FailureLabel = Literal[
    "crash", "preflight_crash", "train_budget_overrun", "eval_budget_overrun", "harness_abort", "disqualified"
]


class TrialIntended(Frozen):
    """id `<trial>/intended`, written before the process starts; reserves the budget."""

    trial: str
    branch: str
    seed: int
    purpose: Literal["base", "noise", "branch", "confirm", "audit", "certify", "probe", "guard"]
    reserve_cpu_s: float
    reserve_gpu_s: float = 0.0
    reserve_usd: float = 0.0
    train: bool = True
    """False: it only evaluates a stored policy, and does not count as a trial of the budget."""


class SplitScore(Frozen):
    """Scores of one policy on one split. `per_task`: task id -> share of correct attempts."""

    split: str
    step: int
    score: float | None
    """Mean over the tasks; None where no attempt at all was graded."""
    attempts: int
    """Attempts per task."""
    per_task: dict[str, float]
    components: dict[str, float] = {}
    """Mean of each reward component."""
    errors: int = 0
    """Rollouts lost to infrastructure faults: not in any mean."""
    proxy_per_task: dict[str, float] = {}
    """Task id -> mean of the component that the environment declares a proxy; empty where it declares none."""
    temperature: float | None = None
    """Sampling temperature of these attempts where the recipe has a deployment temperature of its own;
    None: that of the run's evaluations."""
    greedy: float | None = None
    """The second reading: mean over the tasks of one attempt each by greedy decoding. None: there was none."""
    greedy_per_task: dict[str, float] = {}
    """Task id -> 1 or 0; a task whose greedy attempt was lost to an infrastructure fault is absent."""
    encrypted: str = ""
    """Of gate and cert: the three mappings by task as one message (base64, `records/sealed.py`); they are empty
    then, in files and ledger. Empty where the run encrypts nothing."""


class CanaryFlip(Frozen):
    """A grading canary that gave the wrong result: what was graded since the last good one does not count."""

    split: str
    step: int
    flip: str
    """What the canary showed."""
    void: tuple[str, ...] = ()
    """Rollouts without a grade."""
    culprits: tuple[str, ...] = ()
    """Rollouts after which a canary flipped again when they were graded one by one; without a grade as well."""
    graded_again: tuple[str, ...] = ()
    """Rollouts that were graded again, with good canaries."""


class FromCache(Frozen):
    """What of a trial was computed earlier, by this or another run, and taken from the cache."""

    parts: tuple[str, ...]
    """What it was, and the key of each: `training 3fa1...`, `warm start ...`, `evaluation/gate ...`, `start ...` (what
    a training went on from)."""
    cpu_s: float
    """CPU-seconds that these parts took when they were computed."""
    wall_s: float

    @property
    def begun(self) -> bool:
        """Was it only what a training went on from?"""
        return all(p.startswith("start ") for p in self.parts)


TOKEN_SUMS = ("tokens_forward", "tokens_trained")
"""Curve keys: tokens since the base policy that passed through a network without and with a gradient, prompts included
(sampling and the reference policy's reading; updates)."""
WITH_GRADIENT = 3.0
"""What a token of an update costs, in forward passes: the backward pass takes two (Kaplan et al. 2020, section 2.1)."""


def token_passes(row: Mapping[str, float]) -> float | None:
    """Compute up to a step of a curve, in forward passes of a token; None where its trainer counted none."""
    if not all(k in row for k in TOKEN_SUMS):
        return None
    forward, trained = (row[k] for k in TOKEN_SUMS)
    return forward + WITH_GRADIENT * trained


class TrialFinished(Frozen):
    """id `<trial>/finished`; settles the budget. Gate scores are here for the judge; views show means only."""

    trial: str
    branch: str
    seed: int
    status: Literal["complete", "failed"]
    label: FailureLabel | None = None
    error: str = ""
    cpu_s: float
    wall_s: float
    gpu_s: float = 0.0
    """GPUs that it held, times the seconds for which it did, of all its attempts; 0: none, or taken from the cache."""
    usd: float | None = None
    """US dollars by the prices of the day, told by the run; None: it has none."""
    steps: int
    resumed: int = 0
    """How many times it continued from a checkpoint."""
    peak_rss_mb: float = 0.0
    policy_sha256: str = ""
    policy_path: str = ""
    """Relative to the run folder."""
    scores: tuple[SplitScore, ...] = ()
    curve: tuple[dict[str, float], ...] = ()
    """One dict per training step: step, reward, frac_reward_zero_std, entropy, completions/mean_length, ..."""
    parts: tuple[str, ...] = ()
    """Sealed Parquet parts of its rollouts, relative to the run folder."""
    parts_sha256: tuple[str, ...] = ()
    """SHA-256 of each part, in the same order: ties the rollouts to the ledger's hash chain."""
    health: tuple[HealthReport, ...] = ()
    env_knobs: dict[str, Any] = {}
    """Environment knobs of its evaluations, where the protocol sets any."""
    files: dict[str, str] = {}
    """SHA-256 of what else it left (specification, all files of its policy; unsealed rollouts where it failed), by path
    relative to the run folder."""
    canary_flips: tuple[CanaryFlip, ...] = ()
    start_sha256: str = ""
    """Of the policy that its recipe went on from (`Recipe.start`), trained under the same seed; empty: none."""
    cached: FromCache | None = None
    """None: it was computed here. `cpu_s` and `wall_s` are what was really spent, on taking it; curve, scores, memory
    and rollouts are those of the computation."""

    @property
    def computed_cpu_s(self) -> float:
        """CPU-seconds that it takes to compute, whoever did."""
        return self.cpu_s + (self.cached.cpu_s if self.cached else 0.0)

    @property
    def training_s(self) -> float | None:
        """Seconds that the training took, its evaluations apart: of CPU, or of verl's steps; those of a cached training
        as when it was computed. None where nobody measured them."""
        if self.status != "complete" or not self.steps or not self.curve:
            return None
        total = self.curve[-1].get("cpu_s") or sum(x.get("timing_s/step", 0.0) for x in self.curve)
        return total if total > 0 else None

    @property
    def training_tokens(self) -> float | None:
        """Compute of the training in forward passes of a token, the same whatever else the machine did; None where its
        trainer counted none."""
        return (token_passes(self.curve[-1]) or None) if self.training_s is not None else None


def training_compute(*sides: Iterable[TrialFinished]) -> tuple[list[list[float]], bool]:
    """(compute of every measured training of each side, is it counted in tokens?): `training_tokens` where all of them
    have these, else seconds, which depend on what else the machine did."""
    known = [[(t.training_tokens, s) for t in side if (s := t.training_s)] for side in sides]
    counted = all(n for side in known for n, _ in side)
    return [[n if counted and n else s for n, s in side] for side in known], counted


class NoiseMeasured(Frozen):
    """id `noise/<n>`: variance components from A/A trials of the same recipe."""

    branch: str
    seeds: tuple[int, ...]
    score_mean: float
    seed_sd: float
    """Standard deviation of the trial score between seeds (tasks fixed)."""
    task_sd: float
    """Standard deviation of per-task paired differences between two seeds."""
    noise_floor: float
    numbers: dict[str, float] = {}
