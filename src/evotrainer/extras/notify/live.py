"""The run's side of notifying: starts the sender, passes on what it says, tells it how the run ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.config.task import NotifyConfig
from evotrainer.errors import AbortedError, EvoTrainerError
from evotrainer.extras.follower import Follower, Listening
from evotrainer.records.text import cause

LAST_S = 15.0
"""Seconds that a run which ended waits for its last message at most; the sender ends by itself, within two minutes."""
STOPPED_S = 3.0
"""The same where it was stopped."""


class _Sending:
    """The sender at work."""

    def __init__(self, folder: Path, section: NotifyConfig, note: Any, seen: int) -> None:
        self._note = note
        self._beats: tuple[Any, ...] = ()
        orders = {"folder": str(folder.absolute()), "section": section.model_dump(mode="json"), "seen": seen}
        self._follower = Follower("evotrainer.extras.notify.sender", orders, self._take)
        if self._follower.problem:
            self._take({"failed": self._follower.problem})

    def heard(self, name: str, values: tuple[Any, ...]) -> None:
        """The run says something: let the sender speak, and tell it of signs of life."""
        if name == "trials":
            beats = tuple((spec.trial, h.step, h.phase) for spec, h in values[0] if h)
            if beats != self._beats:
                self._beats = beats
                self._follower.tell({"alive": True})
        self._follower.listen()

    def _take(self, message: dict[str, Any]) -> None:
        if "failed" in message:
            self._note(f"warning: notify failed ({message['failed']}); the run goes on, messages are tried again")

    def end(self, last_s: float, **word: Any) -> None:
        """Tell the sender how the run ended, and give it a moment."""
        self._follower.tell(word)
        self._follower.end(last_s, leave=True)


@contextlib.contextmanager
def notifying(folder: Path, section: NotifyConfig, view: Any, seen: int) -> Iterator[Any]:
    """The observer to run under; `seen`: events that the ledger holds already."""
    sending = _Sending(folder, section, view.note, seen)
    try:
        yield Listening(view, sending.heard)
    except BaseException as e:
        by_hand = isinstance(e, AbortedError | KeyboardInterrupt)
        sending.end(STOPPED_S, ended=_words(e), by_hand=by_hand)
        raise
    sending.end(LAST_S, ended="", by_hand=False)


def _words(e: BaseException) -> str:
    """What a run was ended by; the text of a fault of ours, or of a user's code, may quote anything."""
    if isinstance(e, EvoTrainerError):
        return cause(e)
    return "by hand" if isinstance(e, KeyboardInterrupt) else type(e).__name__
