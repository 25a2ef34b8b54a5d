"""Environments: task sets, and what attempts at their tasks run in."""

from evotrainer.envs.outcome import OPTION, check_needed, check_payable, pay_terms, payable_components
from evotrainer.envs.registry import open_environment, probe_options
