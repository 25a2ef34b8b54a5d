"""A reading process: `python -m evotrainer.studies.audit.worker` takes row groups on stdin and keeps their traits."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

from evotrainer.executors.process import die_with_parent
from evotrainer.records.output import print
from evotrainer.studies.audit.trait_cache import CacheError, keep_or_skip
from evotrainer.studies.audit.units import part_groups


def main() -> int:
    """Exit 0; StoreError's code where the cache cannot be written. A line on stdout per row group that is done."""
    die_with_parent(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    gc.set_threshold(1_000_000)  # hundreds of thousands of small objects live for one row group, in no cycle
    job = json.load(sys.stdin)
    groups = {}
    for part, index in job["groups"]:
        if part not in groups:
            groups[part] = {g.index: g for g in part_groups(Path(part), [])}
        try:
            if index in groups[part]:
                keep_or_skip(groups[part][index], job["sampled"], Path(job["cache"]))
        except CacheError as e:
            print(f"evotrainer: {e}", file=sys.stderr)
            return e.exit_code
        print(index, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
