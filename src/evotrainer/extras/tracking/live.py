"""The run's side of live tracking: starts the follower, passes on what it says, waits for it at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evotrainer.extras.follower import Follower, Listening

LAST_S = 120.0
"""Seconds that the follower is given after the run's end; then it is ended, and `evotrainer track` does the rest."""


STOPPED_S = 10.0
"""The same where the run was stopped."""


class FollowerProcess:
    """A follower at work."""

    def __init__(
        self, folder: Path, to: tuple[str, ...], project: str, options: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        self.folder, self.to, self._note = folder, to, note
        self._left = set(to)
        orders = {"folder": str(folder), "to": list(to), "project": project, "options": dict(options)}
        self._follower = Follower("evotrainer.extras.tracking.follower", orders, self._take)
        if self._follower.problem:
            self._warn(", ".join(to), self._follower.problem)
            self._left.clear()

    def listen(self) -> bool:
        """Pass on what the follower said; False once it has ended."""
        return self._follower.listen()

    def _take(self, message: dict[str, Any]) -> None:
        if "failed" in message:
            self._left.discard(message["failed"])
            self._warn(message["failed"], message["cause"])
        elif "done" in message:
            self._left.discard(message["done"])
            self._note(f"figures exported: {message['where']}")

    def _warn(self, name: str, cause: str) -> None:
        self._note(
            f"warning: tracking to {name} failed ({cause}); the run goes on and loses nothing: "
            f"evotrainer track {self.folder} --to {name} exports it later"
        )

    def end(self, last_s: float = LAST_S) -> None:
        """Let the follower export the rest; end it where it takes longer than `last_s`."""
        in_time = self._follower.end(last_s)
        for name in sorted(self._left):
            self._warn(name, "the exporting process ended" if in_time else "not finished in time")
        self._left.clear()


@contextlib.contextmanager
def following(folder: Path, tracking: Any, view: Any) -> Iterator[Any]:
    """The observer to run under. `tracking`: the task file's section, which names a tracker."""
    followed = FollowerProcess(folder, tracking.to, tracking.project, tracking.options, view.note)
    try:
        yield Listening(view, lambda name, values: followed.listen())
    except BaseException:  # nobody who stopped a run should have to wait for a tracker
        followed.end(STOPPED_S)
        raise
    followed.end()
