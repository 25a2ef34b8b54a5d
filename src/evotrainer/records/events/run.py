"""A run opened, its skills, its certificate, its end."""

from __future__ import annotations

from typing import Any, Literal

from evotrainer.records.detectors import GainExplanation
from evotrainer.records.frozen import Frozen
from evotrainer.records.skills import SkillTrial
from evotrainer.records.verdicts import GuardRow

FORMAT: Literal[2] = 2
"""Of ledgers and of all that a run writes: one that another format's run wrote is refused when it is opened."""


class TaskSet(Frozen):
    """Tasks of a split that a run is judged on (gate) or certified on (cert)."""

    split: Literal["gate", "cert"]
    ids: str
    """SHA-256 (64 hex) of the ids of the tasks that are evaluated, sorted."""
    tasks: str = ""
    """Content of the whole split (`records.looks.set_key`), by which runs share their looks at it."""
    run: int = 0
    """The how-manieth run on these gate tasks it is; 0: they are its own, or nothing is counted."""
    counted: bool = True
    """False: earlier runs may have been judged on them, and this one's alpha does not know of it."""
    alpha: float | None = None
    """One-sided probability of any false promotion that the run may spend on them; None: `judge.alpha`, whole."""


class TaskDraw(Frozen):
    """Where gate and cert come from."""

    mode: Literal["fresh", "given", "fixed"]
    """fresh: from a seed that the run drew. given: from the task file's number. fixed: the environment's own."""
    commitment: str
    """SHA-256 (64 hex) of seed and salt, which the last event reveals (`RunClosed`); it also names the run in the
    register of looks."""
    seed: str = ""
    """Name of the seed (`records.sealed.Seed.name`), as evaluations have it; empty where fixed."""
    sets: tuple[TaskSet, ...] = ()

    def of(self, split: str) -> TaskSet | None:
        """A split's tasks; None where there are none."""
        return next((s for s in self.sets if s.split == split), None)

    @property
    def counted(self) -> bool:
        """See `TaskSet.counted`, of gate."""
        gate = self.of("gate")
        return gate is None or gate.counted


class RunOpened(Frozen):
    """id `run`"""

    run: str
    task: str
    task_hash: str
    """SHA-256 (16 hex) of the resolved task file."""
    task_sha256: str
    """SHA-256 (64 hex) of `task.toml` in the run folder, byte for byte."""
    version: str
    """evotrainer version."""
    format: Literal[2] = FORMAT
    seed: int
    agent: str
    autonomy: str
    budget: dict[str, float]
    price: str = ""
    """The prices that costs are told by, with their day; empty: none are given."""
    machine: dict[str, str]
    sandbox_tier: str
    environment: dict[str, Any]
    """env.describe(): name, version, hash, components, splits with sizes."""
    base_policy: dict[str, str]
    """path as given, sha256 of the weights."""
    draw: TaskDraw
    """Gate and cert tasks."""
    key_sha256: str = ""
    """SHA-256 (64 hex) of the key that gate and cert are encrypted with up to the first end, which reveals it. Empty:
    they are not encrypted."""

    @property
    def isolation(self) -> str:
        """The sandbox tier in one line; below A a warning with what is missing."""
        if self.sandbox_tier not in ("A", "B", "C", "D", "E"):
            return f"sandbox: {self.sandbox_tier or 'not described by the environment'}"
        isolation = self.environment.get("isolation") or {}
        line = f"sandbox tier {self.sandbox_tier}" + (f": {isolation['promise']}" if isolation.get("promise") else "")
        if self.sandbox_tier == "A":
            return line
        missing = "; ".join(isolation.get("missing") or ()) or "see `evotrainer doctor`"
        return f"warning: {line}; missing for tier A: {missing}"


class LibraryOpened(Frozen):
    """id `library`: the skills that the agent may look up, copied to `library/` when it began."""

    sources: tuple[str, ...]
    """`run.skills` as given."""
    skills: dict[str, str]
    """Skill -> content hash of its folder (SHA-256)."""


class SkillDistilled(Frozen):
    """id `<branch>/skill`, later `<branch>/skill/fresh` (re-estimated) or `<branch>/skill/invalid`:
    what a verdict taught, in `skills/<skill>/`."""

    round: int
    branch: str
    skill: str
    """Folder name."""
    bottleneck: str
    factor: str
    direction: str
    trial: SkillTrial
    sha256: str
    """Content hash of the skill's folder from here on."""


class CertRow(Frozen):
    """One policy family on the cert split."""

    name: str
    """base, start (the human recipe), champion"""
    branch: str
    seeds: tuple[int, ...]
    score: float
    low: float
    high: float
    per_seed: tuple[float, ...]
    components: dict[str, float] = {}
    proxy_gap: float | None = None
    """visible minus hidden, or what the environment calls its proxy"""
    greedy: float | None = None
    """Score by greedy decoding, one attempt per task, mean over the seeds; None where it was not read so."""
    temperature: float | None = None
    """The deployment temperature that `score` was sampled at; None: that of the run's evaluations."""
    decoding: Literal["sampled", "greedy"] | None = None
    """How its policies scored higher on search; None: not read both ways."""
    gained: GainExplanation | None = None
    """What its gain over the base policy goes with; None where rollouts of one are missing."""


class Certified(Frozen):
    """id `certified`, `certified/2` after further rounds: the cert split, read once for each champion."""

    rows: tuple[CertRow, ...]
    champion: str
    comparisons: dict[str, dict[str, float]]
    """e.g. `champion-base`: {mean, low, high, p}; `same_weights`: the two are one policy."""
    greedy: dict[str, dict[str, float]] = {}
    """The same by greedy decoding; `excess_high`: one-sided 95% upper bound of this gain minus half of the sampled one,
    `sampled_low` the lower bound of that one. Empty where one of the policies was not read so."""
    chosen: dict[str, dict[str, float]] = {}
    """The same with each policy decoded as scored higher on search (`CertRow.decoding`): nobody is ahead because
    another was not offered it. Empty where one of the policies was not read so."""
    scaffold: dict[str, float] = {}
    """What the champion's texts do to the base policy, untrained: {base, base_with_scaffold, alone, low, high, se,
    tasks}. Empty where they are the starting recipe's."""
    guards: tuple[GuardRow, ...] = ()
    """What must not be lost elsewhere, and whether it was."""
    look: int = 1
    """How often this run has certified by now: later certificates look at the same cert tasks again."""
    of_set: int = 0
    """Which certificate on these cert tasks it is, over all runs in the register of looks; 0: not counted."""
    by_runs: int = 0
    """Of so many runs."""

    @property
    def gain(self) -> dict[str, float] | None:
        """What the champion, on fresh seeds, scores above the starting recipe on unseen tasks: mean, bounds `low`
        and `high` of a 95% interval, p. None where the champion is the starting recipe."""
        return self.comparisons.get("champion-start")

    @property
    def gain_shown(self) -> bool:
        """Does the whole interval of `gain` lie above 0?"""
        return self.gain is not None and self.gain["low"] > 0

    def below_base(self, branch: str) -> dict[str, float] | None:
        """A branch's comparison with the base policy (mean, low, high, p) where it is certified to be worse: the whole
        interval lies below 0; else None."""
        found = self._against_base(branch)
        return found if found.get("high", 0.0) < 0 else None

    def like_base(self, branch: str) -> dict[str, float] | None:
        """The same where neither is shown to be better: the interval holds 0."""
        found = self._against_base(branch)
        return found if found and found["low"] <= 0 <= found["high"] else None

    def is_base(self, branch: str) -> bool:
        """Are a branch's weights those of the base policy?"""
        return "same_weights" in self._against_base(branch)

    def _against_base(self, branch: str) -> dict[str, float]:
        name = next((r.name for r in reversed(self.rows) if r.branch == branch), "")
        return self.comparisons.get(f"{name}-base", {})


class Resumed(Frozen):
    """id `resumed/<n>`: the run was taken up again, after an interruption or, with more rounds, after its end."""

    n: int
    overrides: tuple[str, ...] = ()
    files: dict[str, str] = {}
    """Files of the environment that were corrected since, path -> SHA-256: taken up as long as no training had
    finished, and what follows rests on them."""
    budget: dict[str, float] | None = None
    """The limits from here on; None: those of before."""
    price: str = ""
    """The prices from here on; empty: those of before."""


class RunClosed(Frozen):
    """id `closed`, `closed/2` after further rounds"""

    reason: str
    champion: str
    cpu_s: float
    wall_s: float
    peak_rss_mb: float
    seed: str = ""
    salt: str = ""
    """What gate and cert were drawn from, as the first event committed to it; empty where nothing was drawn."""
    key: str = ""
    """The key (64 hex) of what was encrypted up to here; empty where nothing was."""
    next_key_sha256: str = ""
    """As `RunOpened.key_sha256`, up to the next end."""
