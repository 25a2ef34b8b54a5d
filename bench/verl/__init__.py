"""The real verl on this machine, without a GPU: `python -m bench.verl VERL_PYTHON`."""
