"""The Python API: start, resume and read runs.

from evotrainer.api import start, open_run
run = start("tasks/code.toml", "runs/mine", overrides=["run.rounds=1"])
print(run.champion, run.certification)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.config.load import apply_overrides, as_path, load_run_task, load_task, no_run, resolve
from evotrainer.config.overrides import Overrides
from evotrainer.config.task import TaskFile
from evotrainer.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evotrainer.agents.base import Agent
    from evotrainer.executors import MakeExecutor
    from evotrainer.projections.facts import Fact
    from evotrainer.projections.state import RunState
    from evotrainer.records.answers import GateAnswer
    from evotrainer.records.events import Certified, Reestimated, RunClosed
    from evotrainer.records.ledger import Event, Ledger
    from evotrainer.records.rollout import Rollout
    from evotrainer.records.verdicts import ShortcutAudit, Verdict
    from evotrainer.run.observer import Observer
    from evotrainer.verify import VerifyReport

__all__ = ["Run", "audit_branch", "open_run", "preflight", "resume", "start"]


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Run:
    """A run folder, open for reading."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", as_path(self.folder, "folder"))  # people write Run("runs/x")

    def events(self) -> list[Event]:
        """All events, oldest first."""
        with self.ledger() as ledger:
            return ledger.events()

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, read-only."""
        from evotrainer.records.ledger import Ledger

        with contextlib.closing(Ledger.open(self.folder / "ledger.db", readonly=True)) as ledger:
            yield ledger

    @property
    def task(self) -> TaskFile:
        """The resolved task file of the run."""
        return load_run_task(self.folder)

    @property
    def limits(self) -> dict[str, float]:
        """Current budget limits: the task file's, with what later resumes changed."""
        overrides = [o for e in self.events() if e.kind == "resumed" for o in e.body.overrides]
        return resolve(apply_overrides(self.task.model_dump(mode="json"), overrides)).budget.limits()

    @property
    def state(self) -> RunState:
        """What the events say: branches, trials, versions, champion, verdicts, noise."""
        from evotrainer.projections.state import RunState

        return RunState.of(self.events())

    @property
    def champion(self) -> str | None:
        """Branch of the current champion."""
        return self.state.champion

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts, in order."""
        return list(self.state.verdicts)

    @property
    def certification(self) -> Certified | None:
        """Scores on the cert split, None before the end."""
        return self.state.certified

    @property
    def reestimated(self) -> dict[str, Reestimated]:
        """Promoted branch -> its effect, with bounds, on fresh seeds: its promotion did not choose it by them."""
        return {e.body.branch: e.body for e in self.events() if e.kind == "reestimated"}

    @property
    def caveats(self) -> dict[str, tuple[Fact, ...]]:
        """Certified branch -> its caveats: gains that nothing explained. Empty: none."""
        from evotrainer.projections.caveats import caveats

        return caveats(self.events())

    @property
    def closed(self) -> RunClosed | None:
        """The closing event, None while the run can be resumed."""
        return self.state.closed_by

    def rollouts(
        self, split: str = "search", *, branch: str | None = None, trial: str | None = None, step: int | None = None
    ) -> Iterator[Rollout]:
        """Recorded attempts, trial by trial, oldest first, read as they are asked for; also while the run goes on.

        `split`: train, search, gate or cert, of greedy attempts e.g. search-greedy. `branch`: b0, b1, ... or base; all
        by default, without audits, which are read by `trial` (b1-s2, ...). `step`: training step of the policy.

        Raises ConfigError: unknown split, branch or trial; EncryptedError: gate or cert before the run's close;
        IntegrityError, while reading, for damage.
        """
        from evotrainer.projections.rollouts import stores_of
        from evotrainer.records.arrow_schema import decode
        from evotrainer.records.reading import read_batches

        stores = stores_of(self.folder, self.events(), split, branch, trial)
        batches = read_batches(stores, split=split, steps=None if step is None else [step])
        return (r for batch in batches for r in decode(batch))

    @property
    def question(self) -> Event | None:
        """The `gate_asked` event that a human has not answered yet; None: nobody is asked."""
        from evotrainer.records.answers import open_question

        return None if self.closed else open_question(self.events())

    def answer(self, answer: str, words: str = "", *, by: str = "", to: str = "") -> GateAnswer:
        """Answer the gate that the run waits at: approve, revise (with words) or abort; `to`: only the question of this
        id. ConfigError for what is no answer, AgentError where nobody is asked, or somebody answered before."""
        from evotrainer.records.answers import give_answer

        return give_answer(self.folder, self.events(), answer, words, by=by, to=to)

    def verify(self, head: str = "") -> VerifyReport:
        """RunCheck hash chain, files, and what can be computed again; `head`: hash of an event noted earlier."""
        from evotrainer.verify import verify
        from evotrainer.views.report import check_report

        found = verify(self.folder, head)
        return found if found.problems else found.joined("report", *check_report(self.folder))

    def export(self, out: Path | str, branch: str | None = None, seed: int | None = None, anyway: bool = False) -> Path:
        """Write a branch's policy (default: the champion's) as a Hugging Face folder with a card; returns its path.

        Raises ConfigError: unknown, untrained or (without `anyway`) invalid branch, `out` not new or empty;
        IntegrityError where the policy is not what the ledger says; MissingDependencyError where an adapter cannot be
        merged for want of a package.
        """
        from evotrainer.extras.export import choose, write_evidence, write_model, write_sources
        from evotrainer.extras.scaffold import write_scaffold
        from evotrainer.records.scaffold import slots_of
        from evotrainer.views.card import evidence, model_card
        from evotrainer.views.fold import load_view

        chosen = choose(self.folder, self.events(), branch, seed, anyway)
        view = load_view(self.folder, rollouts=False)
        facts: dict[str, Any] = {
            "trial": chosen.trial.trial,
            "seed": chosen.trial.seed,
            "certified": chosen.certified,
            "invalid": chosen.invalid,
            "worse": chosen.worse,
            "caveats": [*filter(None, [chosen.unshown]), *(c.text for c in view.caveats.get(chosen.branch, ()))],
            "rule": chosen.rule,
        }
        to = Path(out)

        def finish(folder: Path, base: str) -> None:
            sha = chosen.trial.policy_sha256
            card = model_card(view, chosen.branch, **facts, sha256=sha, base=base, name=to.absolute().name)
            (folder / "README.md").write_text(card, encoding="utf-8")
            recipe = view.branches[chosen.branch].recipe if chosen.branch in view.branches else None
            write_sources(folder, recipe)
            write_scaffold(folder, recipe, slots_of(view.state.environment))
            write_evidence(folder, evidence(view, chosen.branch, **facts, policy_sha256=sha))

        write_model(self.folder, chosen, to, finish)
        return to

    def report(self, out: Path | None = None) -> Path:
        """Write the HTML report; returns its path."""
        from evotrainer.views.report import write_report

        return write_report(self.folder, out)


def open_run(folder: Path | str) -> Run:
    """A run folder for reading; StoreError where it is none."""
    p = as_path(folder, "folder")
    if not (p / "ledger.db").is_file():
        raise StoreError(no_run(p))
    return Run(p)


def start(
    task: Path | str | TaskFile,
    out: Path | str | None = None,
    overrides: Overrides = (),
    *,
    agent: Agent | None = None,
    view: Observer | None = None,
    ask: Callable[[str, str], tuple[str, str]] | None = None,
    executor: MakeExecutor | None = None,
) -> Run:
    """Run a task from its base policy to a certified champion, in a new folder; `executor` makes what runs
    its trials, from the run folder and the task file, in place of the task file's choice. `ask` (which gate, what is
    to be decided) -> (APPROVE, REVISE or ABORT, words) answers a human's gates; None: they wait for `Run.answer`.

    Raises ConfigError, BudgetError, SandboxError, StoreError or TrainerError with cause and remedy; what was recorded
    until then stays and `resume` goes on.
    """
    from evotrainer.run.approvals import asking
    from evotrainer.run.starting import Caller, begin

    resolved = task if isinstance(task, TaskFile) else load_task(task, overrides)
    folder = as_path(out, "out") if out else Path("runs") / f"{resolved.task.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    begin(resolved, folder, Caller(view, ask and asking(ask), agent, executor))
    return Run(folder)


def resume(
    folder: Path | str,
    overrides: Overrides = (),
    *,
    agent: Agent | None = None,
    view: Observer | None = None,
    ask: Callable[[str, str], tuple[str, str]] | None = None,
    executor: MakeExecutor | None = None,
) -> Run:
    """Resume a run that was interrupted; a closed run is returned as it is, unless `run.rounds` asks for more rounds
    than it has played: then it goes on, with the same error budget, and is certified again if its champion changes.
    """
    from evotrainer.run.approvals import asking
    from evotrainer.run.starting import Caller, resume_run

    run = open_run(folder)
    resume_run(run.folder, overrides, Caller(view, ask and asking(ask), agent, executor))
    return run


def preflight(
    task: Path | str | TaskFile,
    *,
    new: bool = False,
    folder: Path | None = None,
    human: bool | None = None,
    dry: bool = False,
) -> list[str]:
    """Make every check before anything is spent (`evotrainer.run.checks`); of a `new` run also of its folder, values,
    rewards, skills and trackers. `human`: can a person be asked? `dry`: nothing is run afterwards.

    Returns notes for the reader; raises ConfigError, MissingDependencyError and kin with the remedy.
    """
    from evotrainer.run.checks import check_run
    from evotrainer.run.checks.base import BeforeRun

    task = task if isinstance(task, TaskFile) else load_task(task)
    return check_run(BeforeRun(task, new, folder, human, dry))


def audit_branch(
    folder: Path | str,
    branch: str,
    capabilities: Sequence[str] = (),
    *,
    view: Observer | None = None,
    executor: MakeExecutor | None = None,
) -> tuple[list[ShortcutAudit], RunState]:
    """Audit a branch of a run that is not running; `capabilities` empty: every shortcut its evaluations left open.

    Returns its audits and the run's state after them. ConfigError for a branch or capability that is not there.
    """
    from evotrainer.run.audit_branch import audit_branch as audit

    open_run(folder)
    return audit(Path(folder), branch, capabilities, view, executor)
