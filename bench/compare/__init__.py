"""Search arms compared at an equal number of trainings, each arm's choice proved on fresh seeds in the same way."""

from bench.compare.arms import ARMS, check_arms
from bench.compare.plan import ComparePlan, open_plan
from bench.compare.runner import compare
from bench.compare.table import table

__all__ = ["ARMS", "ComparePlan", "check_arms", "compare", "open_plan", "table"]
