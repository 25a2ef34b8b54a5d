"""Benchmarks measure what things cost: they take nothing from the cache of trainings, unless `run.cache` says so. Nor
do they use up the error budget that a user's runs share, whose tasks they run on over and over.
"""

import os

os.environ.setdefault("EVOTRAINER_CACHE", "off")
os.environ.setdefault("EVOTRAINER_REGISTER", "off")
