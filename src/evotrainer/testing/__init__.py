"""Conformance kits: prove a part of your own before a run depends on it (docs/add-your-own.md).

Each function raises AssertionError with what is wrong and returns nothing; call them from your own tests.
"""

from evotrainer.testing.agents import NoTools, check_agent
from evotrainer.testing.commands import check_trainer_command
from evotrainer.testing.detectors import check_detector, check_metric
from evotrainer.testing.environments import check_environment
from evotrainer.testing.executors import check_executor
from evotrainer.testing.importers import check_importer
from evotrainer.testing.trainers import check_trainer

__all__ = [
    "NoTools",
    "check_agent",
    "check_detector",
    "check_environment",
    "check_executor",
    "check_importer",
    "check_metric",
    "check_trainer",
    "check_trainer_command",
]
