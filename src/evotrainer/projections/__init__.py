"""What a run's events say, folded: state, branches, shortcuts, cases, skills, forecasts, budget.
Pure functions of events."""
