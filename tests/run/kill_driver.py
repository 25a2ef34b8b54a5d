"""A driver that is killed and resumed until its run is closed, its trials on paper: `python -m tests.run.kill_driver`.

Each attempt is a forked child, so that what dies at a fault point is a real process, and starting the next one takes a
tenth of a second. Arguments: run folder, task file, overrides. Prints the number of kills.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.compare.paper import draw_result

from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from tests.paper import Paper

BETTER = 12
"""Group size from which a branch is better; the starting recipe's is smaller."""
MOST = 400
"""Kills after which something must be wrong."""


def finish(spec: TrialSpec) -> TrialFinished:
    """What a trial would have written: the same for the same trial, whoever runs it."""
    solved = 0.4 + 0.3 * (spec.branch != "base" and spec.recipe.group_size >= BETTER)
    return draw_result(spec, solved, lambda p: f"{spec.branch}-{spec.seed}-{p.split}", spec.protocol.knobs)


def main(argv: Sequence[str]) -> int:
    """0 once the run is closed; 1 where an attempt ended by anything but a kill."""
    folder, task, *overrides = argv
    paper = Paper(finish)
    for kills in range(MOST):
        child = os.fork()
        if child == 0:
            try:
                if (Path(folder) / "ledger.db").is_file():
                    paper.resume(folder)
                else:
                    paper.start(task, folder, overrides)
                os._exit(0)
            except BaseException as e:  # the child must end here, whatever it was
                print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            print(kills)
            return os.waitstatus_to_exitcode(status)
        if os.WTERMSIG(status) != signal.SIGKILL:
            break
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
