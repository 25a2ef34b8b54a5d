"""Studies of what exists already: audits of anybody's rollouts, backtests, calibration of the gate."""
