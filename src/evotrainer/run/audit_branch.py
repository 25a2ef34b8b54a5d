"""Counterfactual audits on request, of a run that is not running."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.config.load import load_run_task
from evotrainer.errors import ConfigError
from evotrainer.records import keys
from evotrainer.records.ledger import Ledger
from evotrainer.records.verdicts import ShortcutAudit
from evotrainer.run import shortcut_audits
from evotrainer.run.loop import check_unchanged
from evotrainer.run.open_run import open_context

if TYPE_CHECKING:
    from evotrainer.executors import MakeExecutor
    from evotrainer.projections.state import RunState
    from evotrainer.run.observer import Observer


def audit_branch(
    folder: Path,
    branch: str,
    capabilities: Sequence[str] = (),
    view: Observer | None = None,
    executor: MakeExecutor | None = None,
) -> tuple[list[ShortcutAudit], RunState]:
    """Audit a branch of a run that is not running; `capabilities` empty: every shortcut its evaluations left open.

    Returns its audits and the run's state after them. ConfigError for a branch or capability that is not there.
    """
    task = load_run_task(folder)
    with contextlib.closing(Ledger.open(folder / "ledger.db")) as ledger, contextlib.ExitStack() as stack:
        ctx = stack.enter_context(open_context(folder, task, ledger, view=view, executor=executor))
        opened = ctx.recorded(keys.RUN)
        if opened is None:
            raise ConfigError(f"{folder} holds no run yet; `evotrainer resume {folder}` begins it")
        check_unchanged(ctx, opened.body)
        ctx.refresh()
        if branch not in ctx.branches:
            known = ", ".join(ctx.branches) or "none yet"
            raise ConfigError(f"no branch {branch!r} in {folder}; there are: {known}")
        shortcuts, done = ctx.state.shortcuts, ctx.branches[branch].complete
        every = {c.name: c for c in shortcuts.capabilities}
        if unknown := [n for n in capabilities if n not in every]:
            known = ", ".join(every) or "none: its environment declares nothing that can be closed"
            raise ConfigError(f"no capability {unknown[0]!r}; there are: {known}")
        knobs = done[0].env_knobs if done else ctx.env_knobs
        chosen = [every[n] for n in capabilities] or list(shortcuts.to_close(knobs))
        if not chosen:
            raise ConfigError(
                f"nothing to audit: every capability was closed in the evaluations of {branch}; there are: "
                f"{', '.join(every)}"
                if every
                else "nothing to audit: the environment declares no capability that could be closed"
            )
        n = max((e.body.round for e in ledger.events("round")), default=0)
        audits = [shortcut_audits.audit(ctx, n, branch, c, "asked") for c in chosen]
        if branch not in ctx.state.invalid:
            shortcut_audits.settle(ctx, audits)
        return audits, ctx.state
