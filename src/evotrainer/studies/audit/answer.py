"""The process of one `--sql` query: `python -m evotrainer.studies.audit.answer <MiB> <parent>` takes the job
on stdin."""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

from evotrainer.executors.process import die_with_parent
from evotrainer.records.arrow_schema import arrow_schema
from evotrainer.records.output import print

MIB = 2**20


def main() -> int:
    """Write the answer; prints {"trouble": why there is none, or ""}."""
    import polars as pl

    die_with_parent(int(sys.argv[2]))
    job = json.load(sys.stdin)
    tables = {"rollouts": _rollouts(job["rollouts"])} | {n: pl.scan_ipc(at) for n, at in job["tables"].items()}
    context = pl.SQLContext(tables)
    _limit(int(sys.argv[1]) * MIB)
    trouble = ""
    try:
        context.execute(job["sql"], eager=True).write_ipc(job["answer"])
    except MemoryError:
        raise
    except Exception as e:  # Polars has many error types of its own, and panics
        trouble = (str(e).strip().splitlines() or [type(e).__name__])[0]
    print(json.dumps({"trouble": trouble}))
    return 0


def _limit(more: int) -> None:
    """Let this process take up to `more` further bytes of memory; beyond that it ends."""
    with open("/proc/self/statm", encoding="ascii") as f:
        now = int(f.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))


def _rollouts(sources: list[dict[str, Any]]) -> Any:
    import polars as pl

    def said(frame: pl.LazyFrame, source: str, format: str) -> pl.LazyFrame:
        return frame.with_columns(pl.lit(source).alias("source"), pl.lit(format).alias("format"))

    frames = [said(pl.scan_parquet(s["parts"]), s["source"], s["format"]) for s in sources if s["parts"]]
    if not frames:
        empty = pl.DataFrame(pl.from_arrow(arrow_schema().empty_table()))
        frames.append(said(empty.lazy(), "", ""))
    return pl.concat(frames, how="vertical_relaxed").unique("id", keep="any", maintain_order=False)


if __name__ == "__main__":
    raise SystemExit(main())
