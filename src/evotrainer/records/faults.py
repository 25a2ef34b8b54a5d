"""Named points at which a test can kill the process, as `kill -9` or a power cut would.

`EVOTRAINER_KILL_AT=<point>` kills at the first time the point is reached, `<point>#3` at the third.
`EVOTRAINER_KILL_AT=list:<file>` kills nothing and appends each point reached to the file, one per line.
The variable is inherited: points reached in a trial's own process count there. Unset, a point costs one
comparison.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "EVOTRAINER_KILL_AT"

_wanted = os.environ.get(VARIABLE, "")
_reached = 0


def fault_point(name: str) -> None:
    """Die here by SIGKILL if the environment asks for it; see the module's docstring."""
    if _wanted:
        _visit(name)


def _visit(name: str) -> None:
    global _reached
    if _wanted.startswith("list:"):
        # One O_APPEND write per line: several processes may list into the same file.
        fd = os.open(_wanted.removeprefix("list:"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(fd, f"{name}\n".encode())
        os.close(fd)
        return
    point, _, count = _wanted.rpartition("#") if _wanted.rpartition("#")[2].isdigit() else (_wanted, "", "1")
    if name == point:
        _reached += 1
        if _reached == int(count):
            os.kill(os.getpid(), signal.SIGKILL)
