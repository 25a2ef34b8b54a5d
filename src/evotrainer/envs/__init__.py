"""Environments: task sets, and what attempts at their tasks run in."""

from evotrainer.envs.outcome import check_needed, pay_terms
from evotrainer.envs.registry import open_environment

__all__ = ["check_needed", "open_environment", "pay_terms"]
