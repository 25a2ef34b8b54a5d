"""The task file: one TOML per task, dotted overrides, the resolved copy stored with its hash."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from evotrainer.config.budget import BudgetConfig as BudgetConfig
from evotrainer.config.evaluation import Evaluation as Evaluation
from evotrainer.config.guards import GuardConfig as GuardConfig
from evotrainer.config.policy import PolicyConfig as PolicyConfig
from evotrainer.config.policy import PolicyShape as PolicyShape
from evotrainer.config.policy import WarmStart as WarmStart
from evotrainer.config.reader import HarnessConfig as HarnessConfig
from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe


class TaskInfo(Frozen):
    """What the task is called."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    """Name in run folders and reports."""
    about: str = ""
    """What the policy is to do, in a sentence."""


class Judgement(Frozen):
    """What the judge asks for before it promotes (see docs/judge.md)."""

    alpha: float = Field(0.05, gt=0, lt=0.5)
    """One-sided probability of any false promotion in the whole run."""
    min_effect: float = Field(0.01, ge=0, lt=1)
    """Smallest improvement of the gate score that is worth a promotion, in score units (0.01: one point)."""
    worthwhile: float = Field(0.05, gt=0, lt=1)
    """Gain, score units, that the run should not miss: while it is not excluded, an undecided branch gets more seeds.
    `evotrainer calibrate` tells the power at it."""
    min_seeds: int = Field(3, ge=2)
    """Fewest complete trainings of a branch, and of its control, for a verdict; run.seeds holds at least as many."""
    max_seeds: int = Field(12, ge=2)
    """An undecided branch, and its control, get further seeds up to this many; where run.seeds has as many: none."""
    reestimate: Literal["champion", "promotions"] = "champion"
    """Whose effect is measured again on fresh seeds (run.certify_seeds). champion: at the end, from the trainings that
    certification takes anyway. promotions: every promoted branch and its control, both trained again."""
    max_error_share: float = Field(0.05, ge=0, le=1)
    """Share of rollouts lost to infrastructure faults above which nothing is decided."""
    max_cost: float = Field(1.05, ge=1)
    """Highest training compute of a branch, as a multiple of its control's. A branch above it is judged against its
    control's recipe trained for as long; a higher value lets dearer branches be promoted, and the verdict says so."""
    audit: Literal["promotions", "suspects", "never"] = "promotions"
    """Counterfactual audits: evaluate again with the environment's capabilities closed. suspects: a branch whose
    findings question its validity, or whose score jumped. promotions: also every start before the
    rounds, every branch before it is promoted, and the champion before certification. never: a suspected branch stays
    undecided."""


class RunConfig(Frozen):
    """How the run searches, and how many trainings it makes."""

    seed: int = 0
    """Seed of the agent's random choices alone; trainings have seeds of their own (`seeds`)."""
    agent: str = "statistical"
    """Who proposes changes: an agent of docs/agents.md, or `python:FILE:CLASS`."""
    agent_options: dict[str, Any] = {}
    """The agent's own options (docs/agents.md, docs/seat.md)."""
    autonomy: Literal["full", "escalating", "human_gated"] = "full"
    """full: nobody is asked. human_gated: APPROVE / REVISE / ABORT after diagnosis, proposal, backtest and before a
    promotion. escalating: full until two rounds in a row promoted nothing, then human_gated until one does."""
    rounds: int = Field(3, ge=0)
    """At most this many rounds; the agent may stop earlier. 0: the trainings on `seeds` are certified, and no other."""
    branches: int = Field(3, ge=1)
    """Most branches trained and judged per round; each is trained on every one of `seeds`."""
    probes: int = Field(0, ge=0)
    """Search trainings per round at most (one seed, search split, they promote nobody), for agents that search; 0:
    none."""
    changes: int = Field(1, ge=1, le=100)
    """Most factors in which a search training may differ from the champion: control arms change several, and propose
    nothing. A branch changes one."""
    search_seed: int = Field(1001, ge=0)
    """Seeds of search trainings count from here; those of branches and of certification are left out."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """RL seeds on which every branch is trained; the starting recipe too, whose trainings (A/A trials) give the noise
    floor. At least judge.min_seeds, all distinct."""
    certify_seeds: tuple[int, ...] = (101, 102, 103)
    """Fresh seeds, none of them in `seeds`, on which a promoted champion is trained again before certification. Where
    nothing was promoted they are not trained: the starting recipe is certified by its trainings on `seeds`."""
    workers: int = Field(0, ge=0)
    """Trials side by side, one thread each; 0: one per core, and one for the trl trainer where a GPU is visible."""
    checkpoint_every: int = Field(5, ge=1)
    """Steps between two checkpoints of a trial."""
    health_every: int = Field(5, ge=0)
    """Steps between two readings of a training by the harness (each of its last two steps); every search evaluation is
    read as well. 0: only the branch as a whole is read, once it is trained."""
    harness: Literal["default", "minimal"] = "default"
    """Metrics and detectors that a run begins with. default: all built-in ones. minimal: the score layer only."""
    evolve_harness: bool = True
    """New detectors are mined where something moves and no finding says why, and admitted, confirmed or retired by
    rule; false: those of the beginning stay."""
    restarts: int = Field(2, ge=0)
    """Times that a trial process that was killed is started again (executor local); it continues from its
    checkpoint."""
    sampler_dtype: Literal["fp32", "bf16", "auto"] = "fp32"
    """Numbers that sampling computes in; the update always recomputes in fp32. `auto`: bf16 where the processor
    multiplies it natively, decided once, when the run begins. Only fp32 gives the same run on processors that
    differ."""
    veto: bool = True
    """Refuse interventions whose backtest contradicts them. false: train them all the same, as a control arm that shows
    what the veto is worth (`python -m bench.backtest.forecast`)."""
    skills: tuple[str, ...] = ()
    """Skill libraries for the agent: folders of skills, run folders, or `builtin`. Copied into the run when it
    begins."""
    evaluate_only: bool = False
    """Only evaluate the base policy on the splits; train nothing."""
    search_only: bool = False
    """Only search: each round's search trainings and what they teach of each change. Nothing is read on gate or cert,
    nothing is promoted or certified; trainings stay in the cache for a run that proves."""
    cache: str = ""
    """Folder (absolute, or from `~` on) in which trainings and evaluations are kept and found again, by all runs that
    name it; `off`: none. Empty: $EVOTRAINER_CACHE, else `evotrainer/trials` in the user's cache folder."""
    cache_gb: float = Field(10.0, gt=0)
    """GB that the cache may take; the least recently used entries go first."""
    looks: str = ""
    """File in which looks at gate and cert sets that runs share are counted; `off`: they are not, and verdicts say so.
    Empty: $EVOTRAINER_REGISTER, else `evotrainer/looks.db` in the user's state folder."""

    keys: str = ""
    """Folder of the key that gate and cert are encrypted with until the run closes; `off`: they are not.
    Empty: $EVOTRAINER_KEYS, else `evotrainer/keys` in the user's state folder."""

    @field_validator("cache", "looks", "keys")
    @classmethod
    def _place(cls, v: str) -> str:
        if v not in ("", "off") and not v.startswith(("/", "~")):
            raise ValueError("give an absolute path, one that begins with ~, or off")
        return v

    @field_validator("seeds", "certify_seeds")
    @classmethod
    def _distinct(cls, v: tuple[int, ...]) -> tuple[int, ...]:
        if not v:
            raise ValueError("give at least one seed")
        if twice := [s for i, s in enumerate(v) if s in v[:i]]:
            raise ValueError(f"seed {twice[0]} stands there twice; seeds must be distinct")
        return v

    @model_validator(mode="after")
    def _fresh(self) -> RunConfig:
        if set(self.seeds) & set(self.certify_seeds):
            raise ValueError("certify_seeds must be fresh: none of them may be in seeds")
        return self

    @model_validator(mode="after")
    def _searches(self) -> RunConfig:
        if self.search_only and self.evaluate_only:
            raise ValueError("search_only trains and evaluate_only does not; set one of them")
        if self.search_only and not self.probes:
            raise ValueError("search_only makes search trainings; set run.probes to how many a round may make")
        return self


class TrainerConfig(Frozen):
    """What trains and evaluates policies."""

    name: str = "embedded"
    """embedded: EvoTrainer's own small policies, and language models in the layout of Llama or Qwen3, on a CPU. trl:
    any causal language model of the Hugging Face form. command: a training script of yours (docs/command-trainer.md).
    One of your own: docs/add-your-own.md."""
    options: dict[str, Any] = {}
    """The trainer's own options (docs/trainers.md)."""


class ExecutorConfig(Frozen):
    """Where trials run."""

    name: Literal["local", "ray"] = "local"
    """local: processes of this machine. ray: a Ray cluster."""
    options: dict[str, Any] = {}
    """The executor's own options (docs/cluster.md)."""


class TrackingConfig(Frozen):
    """Trackers that a run's figures are also exported to; the ledger stays authoritative."""

    to: tuple[Literal["trackio", "wandb", "mlflow", "tensorboard"], ...] = ()
    """Trackers; none: nothing is exported."""
    project: str = "evotrainer"
    """Project in the tracker, in MLflow the experiment."""
    options: dict[str, Any] = {}
    """Options by target, e.g. `[tracking.options.mlflow]` (docs/tracking.md)."""


class NotifyConfig(Frozen):
    """Who is told of a run that nobody watches (docs/notify.md); a message that fails changes nothing of it."""

    on: tuple[Literal["waiting", "promotion", "end", "crash", "stalled"], ...] = (
        "waiting",
        "promotion",
        "end",
        "crash",
        "stalled",
    )
    """What is told: it waits for a person's answer, promoted a branch, ended, crashed or was killed, makes no progress.
    """
    webhook: str = ""
    """Address (http, https) that messages are posted to. It is stored in the run folder; `webhook_env` is not."""
    webhook_env: str = ""
    """Variable that holds the address instead."""
    form: Literal["json", "slack", "discord", "ntfy"] = "json"
    """What the address understands."""
    command: tuple[str, ...] = ()
    """Program and its arguments: the message as JSON on its standard input, its text in EVOTRAINER_TEXT."""
    every_s: float = Field(60.0, ge=60)
    """Seconds between two messages at least; what happens meanwhile goes into one."""
    stalled_s: float = Field(1800.0, ge=60)
    """Seconds without an event or a changed heartbeat that are no progress."""
    quote: bool = False
    """Quote what is asked, rollouts included, where the run waits for an answer."""

    @property
    def asked(self) -> bool:
        """Is anybody named?"""
        return bool(self.webhook or self.webhook_env or self.command)


class SandboxConfig(Frozen):
    """Where programs that a policy writes are run (docs/sandbox.md)."""

    accept_tier_e: bool = False
    """Run untrusted programs even where nothing isolates them (tier E). Only for code that you trust."""


class TaskFile(Frozen):
    """A resolved task file."""

    task: TaskInfo
    environment: dict[str, Any]
    """`name`, and the environment's own options."""
    policy: PolicyConfig = PolicyConfig()
    recipe: Recipe
    evaluation: Evaluation = Evaluation()
    judge: Judgement = Judgement()
    guard: tuple[GuardConfig, ...] = ()
    """What a promotion must not cost elsewhere, each a table `[[guard]]`."""
    harness: HarnessConfig = HarnessConfig()
    run: RunConfig = RunConfig()
    budget: BudgetConfig = BudgetConfig()
    sandbox: SandboxConfig = SandboxConfig()
    trainer: TrainerConfig = TrainerConfig()
    executor: ExecutorConfig = ExecutorConfig()
    tracking: TrackingConfig = TrackingConfig()
    notify: NotifyConfig = NotifyConfig()

    @field_validator("guard")
    @classmethod
    def _named_apart(cls, v: tuple[GuardConfig, ...]) -> tuple[GuardConfig, ...]:
        names = [g.name for g in v]
        if twice := [n for i, n in enumerate(names) if n in names[:i]]:
            raise ValueError(f"two guards are called {twice[0]}; give each a name of its own")
        return v

    @property
    def named_files(self) -> dict[str, Any]:
        """What names files that the run rests on: the environment's section, a training command of the user's."""
        own = self.trainer.options if self.trainer.name == "command" else {}
        return {**self.environment, "trainer command": own.get("command"), "trainer config": own.get("config")}

    @property
    def hash(self) -> str:
        """16 hex digits of SHA-256 over the canonical JSON."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_toml(self) -> str:
        """The resolved file as TOML; None is left out (TOML has no null)."""
        import tomlkit

        return tomlkit.dumps(_without_none(self.model_dump(mode="json")))


def _without_none(v: Any) -> Any:
    if isinstance(v, dict):
        return {k: _without_none(x) for k, x in v.items() if x is not None}
    if isinstance(v, (list, tuple)):
        return [_without_none(x) for x in v]
    return v


def default_workers() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
