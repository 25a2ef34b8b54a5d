"""`evotrainer import`: anybody's rollouts, copied into a rollout store."""

from __future__ import annotations

import json
import sys

from evotrainer.cli._common import AsJson, Format, Map, RolloutPaths, StoreOut, Workers, check_workers
from evotrainer.cli._progress import progress
from evotrainer.errors import ConfigError
from evotrainer.records.output import print


def import_(
    paths: RolloutPaths,
    *,
    out: StoreOut,
    format: Format = None,
    map: Map = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Copy anybody's rollouts into a rollout store, for backtests and for audits of logs that grow.

    Example: evotrainer import logs/step-*.jsonl --out store/

    Example: evotrainer import mine.csv --map task=problem_id,text=response,reward=score --out store/
    """
    from evotrainer.records.reading import is_store
    from evotrainer.records.text import clean, counted
    from evotrainer.studies.audit.bulk import bulk_import
    from evotrainer.studies.audit.engine import sources_of

    if out.exists() and not (
        out.is_dir() and (is_store(out) or all(f.name.startswith(".import-") for f in out.iterdir()))
    ):
        raise ConfigError(f"{out} exists and is no rollout store; choose a new folder")
    check_workers(workers)
    sources, unknown = sources_of(paths, format, map or ())
    with progress() as say:
        done = bulk_import([item for s in sources for item in s.files()], out, workers, say)
    skipped = [*unknown, *done.skipped]
    for s in skipped[:20]:
        print(clean(f"skipped {s.where}: {s.reason}", 2000), file=sys.stderr)
    if len(skipped) > 20:
        print(f"... and {len(skipped) - 20:,} more", file=sys.stderr)
    formats = ", ".join(f"{c:,} {name}" for name, c in done.formats.most_common()) or "none"
    if as_json:
        summary: dict[str, object] = {"store": str(out), "rollouts": done.rollouts, "formats": dict(done.formats)}
        print(json.dumps(summary | {"skipped": [{"where": s.where, "reason": s.reason} for s in skipped]}, indent=1))
    else:
        print(f"wrote {counted(done.rollouts, 'rollout')} to {out} ({formats}); skipped {len(skipped):,}")
    if not done.rollouts:
        raise ConfigError("nothing could be imported; the reasons are above")
