"""`evotrainer backtest`: what a change, a detector or a gate would have done with rollouts and verdicts that exist."""

from evotrainer.studies.backtest.changes import ReplayedChange, as_intervention, replay_change
from evotrainer.studies.backtest.detectors import DetectorBacktest, backtest_detector, detector_of
from evotrainer.studies.backtest.gates import GateReplay, replay_gate
from evotrainer.studies.backtest.sources import Subject, subjects

__all__ = [
    "DetectorBacktest",
    "GateReplay",
    "ReplayedChange",
    "Subject",
    "as_intervention",
    "backtest_detector",
    "detector_of",
    "replay_change",
    "replay_gate",
    "subjects",
]
