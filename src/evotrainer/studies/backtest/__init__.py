"""`evotrainer backtest`: what a change of the recipe would have done with rollouts that exist."""

from evotrainer.studies.backtest.changes import ReplayedChange, as_intervention, replay_change
from evotrainer.studies.backtest.sources import Subject, subjects
