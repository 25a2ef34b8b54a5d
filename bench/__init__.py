"""Benchmarks measure what things cost: they take nothing from the cache of trainings, unless `run.cache` says so."""

import os

os.environ.setdefault("EVOTRAINER_CACHE", "off")
