"""Search arms compared at an equal number of trainings, each arm's choice proved on fresh seeds in the same way."""

from evotrainer.studies.compare.arms import ARMS, check_arms
from evotrainer.studies.compare.plan import ComparePlan, open_plan
from evotrainer.studies.compare.runner import compare
from evotrainer.studies.compare.table import table

__all__ = ["ARMS", "ComparePlan", "check_arms", "compare", "open_plan", "table"]
