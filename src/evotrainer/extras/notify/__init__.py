"""Messages about a run to a webhook or a command: it waits for a human, promoted, ended, crashed, stands still.

A process of its own reads the ledger and sends (`sender.py`): an address that is slow, dead or wrong cannot stop or
delay the run, which says once that it failed. It also tells of a run whose process was killed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from evotrainer.extras.notify.channels import check
from evotrainer.extras.notify.live import notifying


class Notify(NamedTuple):
    """The row of `run.notifying.NOTIFIERS`."""

    check: Callable[[Any], list[str]]
    notifying: Callable[[Path, Any, Any, int], AbstractContextManager[Any]]


NOTIFY = Notify(check, notifying)
