"""Multi-node training through verl in its own virtual environment; verl is never imported here.

`render -> validate -> sh launch.sh -> evotrainer import`: each step works on one folder (docs/verl.md).
Modules of `plugins/` and `inside/` run in verl's environment only; nothing of ours imports them.
"""

VERSION = "0.9.1"
"""The version of verl that configuration keys, plug-ins and dumps were written and tested against."""
ESTIMATOR = "evo_mean_norm"
"""Name of the advantage estimator that `plugins/evo_advantage.py` registers with verl."""
