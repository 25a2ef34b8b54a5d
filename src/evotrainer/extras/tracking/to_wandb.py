"""Figures as runs of a Weights & Biases project."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from evotrainer.extras.tracking.figures import Target, TrackerRun
from evotrainer.records.frozen import Frozen


class WandbOptions(Frozen):
    """`[tracking.options.wandb]`"""

    mode: Literal["online", "offline", "shared"] | None = None
    """Default: W&B's own (WANDB_MODE, else online)."""
    entity: str = ""
    """User or team; default: W&B's own."""
    dir: str = ""
    """Where its files go; default: `tracking` in the run folder, below which W&B makes its folder `wandb`."""


class Wandb(Target):
    """Weights & Biases: the project, one run per trial, grouped by run; its id follows from the ledger."""

    def __init__(self, folder: Path, project: str, o: WandbOptions) -> None:
        self.project, self.options = project, o
        self.dir = Path(o.dir).expanduser() if o.dir else folder / "tracking"
        self.dir.mkdir(parents=True, exist_ok=True)
        self.url = ""
        self._open: dict[str, Any] = {}
        """Runs to which more will be added."""

    def write(self, sheet: TrackerRun) -> None:
        run = self._open.get(sheet.key) or self._begin(sheet)
        for a in sheet.alerts:
            run.alert(a.title[:64], a.text, level="ERROR", wait_duration=0)  # which else drops a title's second
        for p in sheet.points:
            run.log(dict(p.values), step=p.step)
        run.summary.update({**sheet.summary, **sheet.texts})
        if sheet.complete:
            self._open.pop(sheet.key, None)
            run.finish(exit_code=int(sheet.failed))
        else:
            self._open[sheet.key] = run

    def _begin(self, sheet: TrackerRun) -> Any:
        import wandb

        o = self.options
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            init_timeout=120,
            x_service_wait=120,
            x_disable_stats=True,
            x_disable_meta=True,
        )
        run = wandb.init(
            project=self.project,
            entity=o.entity or None,
            mode=o.mode,
            dir=str(self.dir),
            id=sheet.key,
            name=sheet.name,
            group=sheet.group,
            tags=[t[:64] for t in sheet.tags],
            config=dict(sheet.config),
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        self.url = self.url if run.offline else run.url or self.url
        return run

    def where(self) -> str:
        return self.url or f"wandb, project {self.project}; offline runs below {self.dir / 'wandb'}: wandb sync FOLDER"

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].finish()
