"""Runs on paper: `PaperExecutor` bound to the calls of the API, so that a test says `paper.start(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer import api
from evotrainer.executors.paper import PaperExecutor


class Paper(PaperExecutor):
    """A paper executor that starts, resumes and audits runs itself."""

    def start(self, task: Any, out: Path | str, overrides: Sequence[str] = (), **more: Any) -> api.Run:
        """`api.start` on paper."""
        return api.start(task, out, overrides, executor=self, **more)

    def resume(self, folder: Path | str, overrides: Sequence[str] = (), **more: Any) -> api.Run:
        """`api.resume` on paper."""
        return api.resume(folder, overrides, executor=self, **more)

    def audit_branch(self, folder: Path, branch: str, shortcuts: Sequence[str] = (), **more: Any) -> Any:
        """`api.audit_branch` on paper."""
        return api.audit_branch(folder, branch, shortcuts, executor=self, **more)
