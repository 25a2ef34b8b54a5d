"""verl as a training command (docs/verl.md); verl is never imported here.

`python -m evotrainer.extras.verl REQUEST SETTING...`, run by verl's own Python, trains what a trial's request.json asks
for. It, and the modules of `plugins/` and `inside/`, run in verl's environment only; nothing of ours imports them.
"""

VERSION = "0.9.1"
"""The version of verl that configuration keys and plug-ins were written and tested against."""
ESTIMATOR = "evo_mean_norm"
"""Name of the advantage estimator that `plugins/evo_advantage.py` registers with verl."""
REQUEST = "EVOTRAINER_VERL_REQUEST"
"""Variable that names the request to verl's processes."""
