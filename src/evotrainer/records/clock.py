"""The time of day, for people to read. Durations that decide something are differences of `time.monotonic()`.

Somebody, or NTP, may set the clock of the machine at any moment, by seconds or by years; `time.monotonic()` is never
set, and stands while a Linux machine sleeps. `tests/test_architecture.py` keeps the time of day to this file.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cache

_ELAPSED: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that is never set and goes on while the machine sleeps; macOS has it under the second name."""


def unix_time() -> float:
    """Unix seconds: the time of day when this process first asked, and what has passed since, sleep included. Within a
    process, times follow one another as what they stamp did, whatever was set meanwhile."""
    return _began() + time.clock_gettime(_ELAPSED)


@cache
def _began() -> float:
    return time.time() - time.clock_gettime(_ELAPSED)


LOOK_S = 10.0
"""A supervisor looks many times as often."""


@dataclass(slots=True)
class Silence:
    """For how long what is watched has not changed, on the clock of this process alone."""

    seconds: float = 0.0
    content: object = None
    checked_at: float = field(default_factory=time.monotonic)

    def look(self, content: object) -> float:
        """Seconds of silence up to now. Between two looks at most `LOOK_S` count: who was stopped, or slept with the
        machine, did not hear whether anything was to be heard."""
        now = time.monotonic()
        passed, self.checked_at = min(now - self.checked_at, LOOK_S), now
        self.seconds = self.seconds + passed if content == self.content else 0.0
        self.content = content
        return self.seconds
