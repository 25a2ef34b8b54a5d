"""The process that exports while a run goes on: `python -m evotrainer.tracking.follower`.

Reads its orders as one line of JSON from standard input, then looks at the ledger now and then; standard input closed
means the run has ended: it exports the rest and ends. One line of JSON per event on standard output. Nothing that happens
here can stop or change the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from evotrainer.errors import EvoTrainerError

LOOK_EVERY_S = 3.0


def main() -> None:
    """Follow a run to its end."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # clients print as they like
    os.dup2(quiet, 2)
    orders = json.loads(sys.stdin.buffer.readline())
    follow(Path(orders["folder"]), orders["to"], orders["project"], orders["options"], out)


def follow(folder: Path, to: list[str], project: str, options: dict[str, Any], out: Any) -> None:
    """Export until the parent closes our standard input."""
    from evotrainer.tracking.export import Exporter, about_run, read_events

    def say(**told: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            out.write(json.dumps(told) + "\n")

    working: dict[str, Exporter] = {}
    failed: set[str] = set()

    def failure(name: str, e: BaseException) -> None:
        failed.add(name)
        if (exporter := working.pop(name, None)) is not None:
            exporter.close()
        cause = str(e).strip().split("\n")[0][:300]
        say(failed=name, cause=cause if isinstance(e, EvoTrainerError) else f"{type(e).__name__}: {cause}")

    seen = -1
    while True:
        ended = bool(select.select([0], [], [], LOOK_EVERY_S)[0]) and not os.read(0, 4096)
        try:
            events = read_events(folder)
        except EvoTrainerError:
            events = []  # not there yet, or being written: the next look
        if events and (len(events) != seen or ended):
            seen = len(events)
            for name in [n for n in to if n not in failed]:
                try:
                    if name not in working:
                        working[name] = Exporter(folder, name, project, options.get(name, {}))
                    working[name].export(events, about_run(folder))
                except BaseException as e:  # clients raise what they like, SystemExit too
                    failure(name, e)
        if ended:
            break
    for name, exporter in working.items():
        say(done=name, where=exporter.target.where())
        exporter.close()


if __name__ == "__main__":
    main()
