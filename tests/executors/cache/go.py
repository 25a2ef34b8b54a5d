"""A process that computes trainings into a cache: `python -m tests.executors.cache.go FOLDER TASK RUN SEED...`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.executors.cache.drawn import Place

if __name__ == "__main__":
    place = Place(Path(sys.argv[1]), Path(sys.argv[2]))
    run = sys.argv[3]
    place.go(run, *(place.spec(run, f"b0-s{seed}") for seed in sys.argv[4:]))
    print(*place.notes, sep="\n")
