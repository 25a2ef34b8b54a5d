"""Figures of a run exported to trackers (Trackio, W&B, MLflow, TensorBoard). The ledger stays the truth;
off by default.

While a run goes on, a process of its own follows the ledger (`follower.py`): a tracker that fails, hangs or is missing
cannot stop or change the run. What it did not export, `evotrainer track RUN` exports later; nothing is exported twice.
"""

from evotrainer.extras.tracking.live import FollowerProcess, following
from evotrainer.extras.tracking.targets import TARGETS, check_targets
from evotrainer.run.tracking import Tracking

__all__ = ["TARGETS", "TRACKING", "FollowerProcess", "check_targets", "following"]
TRACKING = Tracking(check_targets, following)
