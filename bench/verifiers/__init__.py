"""verifiers environments for real: `python -m bench.verifiers`."""
