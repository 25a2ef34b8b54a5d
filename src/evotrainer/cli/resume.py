"""`evotrainer resume`: runs an interrupted run to its end."""

from __future__ import annotations

from evotrainer.cli._common import OpenReport, Overrides, Plain, RunFolder, WithPage
from evotrainer.cli._page import page_beside
from evotrainer.cli._running import ask, finish, live_view


def resume(
    folder: RunFolder,
    overrides: Overrides = None,
    *,
    open_report: OpenReport = False,
    plain: Plain = False,
    ui: WithPage = False,
) -> None:
    """Resume an interrupted run, or go on with a finished one. Nothing is lost, and no finished trial runs again.

    Example: evotrainer resume runs/mine budget.cpu_s=5000

    More rounds for a finished run: evotrainer resume runs/mine run.rounds=6
    """
    from evotrainer import api

    with page_beside(folder, ui), live_view(folder, plain) as view:
        api.resume(folder, overrides or [], view=view, ask=ask(view))
    finish(folder, open_report)
