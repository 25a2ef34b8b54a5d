"""The process that sends messages while a run goes on: `python -m evotrainer.extras.notify.sender`.

Its standard input: one line of orders, then lines of the run (a sign of life, how it ended); closed, the run is over,
and where no line said so and the ledger holds no end, the run crashed.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evotrainer.config.task import NotifyConfig
from evotrainer.errors import EvoTrainerError
from evotrainer.extras.follower import OrderLines, follow_run, say
from evotrainer.extras.notify.channels import send
from evotrainer.extras.notify.messages import Notice, Watch, stalled, stopped
from evotrainer.records.chain import Event
from evotrainer.records.ledger import Ledger
from evotrainer.records.text import cause

LOOK_S = 3.0
DRAIN_S = 120
"""Seconds after the run's end by which this process is gone, whatever hangs."""
KEPT = 20
"""Messages that wait to be sent; of more, the oldest go."""


class Outbox:
    """Messages that wait to be sent as one: the first at once, the next not before `every_s` later."""

    def __init__(
        self,
        deliver: Callable[[list[Notice]], None],
        every_s: float,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliver, self._every, self._failed, self._clock = deliver, every_s, failed, clock
        self._last: float | None = None
        self._told = False
        self.left: list[Notice] = []

    def add(self, messages: list[Notice]) -> None:
        self.left = [*self.left, *messages][-KEPT:]

    def due_s(self) -> float:
        """Seconds until something may be sent again."""
        return 0.0 if self._last is None else max(0.0, self._last + self._every - self._clock())

    def flush(self) -> None:
        """Send what waits, if it may be sent now; what fails waits on, and is complained of once."""
        if not self.left or self.due_s() > 0:
            return
        try:
            self._deliver(self.left)
            self.left = []
        except EvoTrainerError as e:
            if not self._told:
                self._failed(cause(e))
            self._told = True
        self._last = self._clock()


class Ledgers:
    """The events of a run's ledger, read again when it has grown."""

    def __init__(self, folder: Path) -> None:
        self._path, self.events = folder / "ledger.db", list[Event]()
        self._mark: tuple[tuple[int, int], ...] = ()

    def changed(self) -> bool:
        """Read again; True where there is something new."""
        try:
            stats = [p.stat() for p in (self._path, self._path.with_name("ledger.head")) if p.exists()]
            mark = tuple((s.st_mtime_ns, s.st_size) for s in stats)
            if mark == self._mark:
                return False
            with contextlib.closing(Ledger.open(self._path, readonly=True)) as ledger:
                events = ledger.events()
        except (EvoTrainerError, OSError):
            return False  # not there yet, or being written: read next time
        self._mark = mark
        self.events, before = events, len(self.events)
        return len(events) > before


def follow(orders: dict[str, Any], lines: OrderLines, out: Any) -> None:
    """Send what there is to tell until the run is over, and then what is left."""
    section, folder = NotifyConfig.model_validate(orders["section"]), str(orders["folder"])
    name = Path(folder).name
    ledger, watch = Ledgers(Path(folder)), Watch(folder, section.on, section.quote, int(orders["seen"]))

    outbox = Outbox(
        lambda found: send(section, name, folder, found), section.every_s, lambda text: say(out, failed=text)
    )
    moved, told, end = time.monotonic(), False, dict[str, Any]()
    while not lines.over:
        for line in lines.read(LOOK_S):
            moved, told = time.monotonic(), False
            end = line if "ended" in line else end
        if ledger.changed():
            moved, told = time.monotonic(), False
            outbox.add(watch.news(ledger.events))
        still = time.monotonic() - moved
        if not told and still >= section.stalled_s and not watch.waits and "stalled" in section.on:
            told = True
            outbox.add([stalled(still)])
        outbox.flush()
    signal.alarm(DRAIN_S)
    ledger.changed()
    outbox.add(watch.news(ledger.events))
    if not watch.ended:
        outbox.add([m for m in [stopped(folder, end.get("ended"), bool(end.get("by_hand")))] if m.kind in section.on])
    outbox.flush()
    out.close()  # the run need not wait for what may be sent only later
    if outbox.left:
        time.sleep(outbox.due_s())
        outbox.flush()


if __name__ == "__main__":
    follow_run(follow)
