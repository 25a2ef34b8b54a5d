"""Control arms: searches that practice knows, behind the same contract and over the same changes as the statistical
agent's. Each trains on one seed, reads the search split only and proposes nothing: what it settles on is recorded with
its search, and `python -m bench.compare` proves it on fresh seeds."""
