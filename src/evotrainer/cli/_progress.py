"""Progress of long work on stderr: nothing in the first seconds, then a bar on a terminal and a line now and then
elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evotrainer.records.output import Progress, print

if TYPE_CHECKING:
    from evotrainer.records.console import Console

PATIENCE_S = 3.0
"""Work that is done by then says nothing."""
EVERY_S = 30.0
"""Time between two lines where there is no terminal."""


@contextmanager
def progress(elsewhere: Progress | None = None) -> Iterator[Progress]:
    """Call what is given with every step of the work. `elsewhere`: called in place of lines where there is no terminal.

    It also speaks while no step ends, so that nobody takes long work for a hanging one.
    """
    from evotrainer.records.console import Console

    console = Console(stderr=True)
    with _bar(console) if console.is_interactive else _lines(elsewhere) as say:
        yield say


@contextmanager
def _bar(console: Console) -> Iterator[Progress]:
    from rich import progress as rich

    from evotrainer.records.text import clean

    columns = [rich.TextColumn("{task.description}", markup=False), rich.BarColumn(), rich.MofNCompleteColumn()]
    times = [rich.TimeElapsedColumn(), rich.TimeRemainingColumn()]
    bar = rich.Progress(*columns, *times, console=console, transient=True)
    job = bar.add_task("", total=None)
    begin = threading.Timer(PATIENCE_S, bar.start)
    begin.daemon = True
    begin.start()
    try:
        yield lambda what, done, of: bar.update(job, description=clean(what[-60:]), completed=done, total=of or None)
    finally:
        begin.cancel()
        begin.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def _lines(elsewhere: Progress | None) -> Iterator[Progress]:
    if elsewhere is not None:
        yield elsewhere
        return
    at, ended, began = ("working", 0, 0), threading.Event(), time.monotonic()

    def say(what: str, done: int, of: int) -> None:
        nonlocal at
        at = (what, done, of)

    def tell() -> None:
        wait = PATIENCE_S
        while not ended.wait(wait):
            what, done, of = at
            share = f", {done:,} of {of:,}" if of > 1 else ""
            print(f"evotrainer: {what}{share}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            wait = EVERY_S

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield say
    finally:
        ended.set()
