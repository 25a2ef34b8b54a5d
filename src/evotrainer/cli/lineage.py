"""`evotrainer lineage`: the tree of a run's branches."""

from __future__ import annotations

from evotrainer.cli._common import RunFolder, console


def lineage(folder: RunFolder) -> None:
    """The tree of branches with their verdicts and effects.

    Example: evotrainer lineage runs/mine
    """
    from evotrainer import api

    api.open_run(folder)
    from evotrainer.views.terminal import render_lineage

    console().print(render_lineage(folder))
