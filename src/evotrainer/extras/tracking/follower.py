"""The process that exports while a run goes on: `python -m evotrainer.extras.tracking.follower`.

Reads its orders as one line of JSON from standard input, then reads the ledger now and then; standard input closed
means the run has ended: it exports the rest and ends. One line of JSON per event on standard output. Nothing that
happens here can stop or change the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from evotrainer.errors import EvoTrainerError
from evotrainer.extras.follower import OrderLines, follow_run, say
from evotrainer.extras.tracking.export import Exporter, about_run, read_events
from evotrainer.extras.tracking.figures import Point, beat_point, running
from evotrainer.records.chain import Event
from evotrainer.records.regular_file import read_object
from evotrainer.records.text import cause

LOOK_EVERY_S = 3.0
LIVE_EVERY_S = 30.0
"""Seconds between two exports of the heartbeats of running trials."""


def follow(orders: dict[str, Any], lines: OrderLines, out: IO[str]) -> None:
    """Export until the run is over."""
    folder, options = Path(orders["folder"]), orders["options"]
    working: dict[str, Exporter] = {}
    failed: set[str] = set()

    def failure(name: str, e: BaseException) -> None:
        failed.add(name)
        if (exporter := working.pop(name, None)) is not None:
            exporter.close()
        say(out, failed=name, cause=cause(e) if isinstance(e, EvoTrainerError) else f"{type(e).__name__}: {cause(e)}")

    def each(do: Callable[[Exporter], object]) -> None:
        for name in [n for n in orders["to"] if n not in failed]:
            try:
                if name not in working:
                    working[name] = Exporter(folder, name, orders["project"], options.get(name, {}))
                do(working[name])
            except BaseException as e:  # clients raise what they like, SystemExit too
                failure(name, e)

    seen, beats, lived = -1, dict[str, list[Point]](), time.monotonic()
    while True:
        list(lines.read(LOOK_EVERY_S))
        ended = lines.over
        try:
            events = read_events(folder)
        except EvoTrainerError:
            events = []  # not there yet, or being written: read next time
        if events and (len(events) != seen or ended):
            seen = len(events)
            about = about_run(folder)
            each(lambda x: x.export(events, about))  # noqa: B023
        listen(folder, events, beats)
        if beats and (ended or time.monotonic() - lived >= LIVE_EVERY_S):
            lived = time.monotonic()
            each(lambda x: x.live(events, beats))  # noqa: B023
            at_work = running(events)
            beats = {trial: points[-1:] for trial, points in beats.items() if trial in at_work}
        if ended:
            break
    for name, exporter in working.items():
        say(out, done=name, where=exporter.target.where())
        exporter.close()


def listen(folder: Path, events: Sequence[Event], beats: dict[str, list[Point]]) -> None:
    """Take in what is new of the heartbeats of trials that run; a torn or missing one is read next time."""
    for trial in running(events) if events else ():
        point = beat_point(read_object(folder / "trials" / trial / "heartbeat"))
        known = beats.setdefault(trial, []) if point else []
        if point and (not known or point.step > known[-1].step):
            known.append(point)


if __name__ == "__main__":
    follow_run(follow)
