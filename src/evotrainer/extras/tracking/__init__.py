"""Figures of a run exported to trackers (Trackio, W&B, MLflow, TensorBoard). The ledger stays the truth;
off by default.

While a run goes on, a process of its own follows the ledger (`follower.py`): a tracker that fails, hangs or is missing
cannot stop or change the run. What it did not export, `evotrainer track RUN` exports later; nothing is exported twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from evotrainer.extras.tracking.live import FollowerProcess, following
from evotrainer.extras.tracking.targets import TARGETS, check_targets


class Tracking(NamedTuple):
    """The row of `run.tracking.TRACKERS`."""

    check: Callable[[tuple[str, ...], Mapping[str, Any]], None]
    following: Callable[[Path, Any, Any], AbstractContextManager[Any]]


TRACKING = Tracking(check_targets, following)
