"""`--sql`: a user's queries over everything that an audit read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.source import InMemoryRollouts
from evotrainer.records.caps import SQL_MB, SQL_SECONDS
from evotrainer.records.ingest import batches, write_batches
from evotrainer.records.reading import stored_parts
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean_text
from evotrainer.studies.audit.engine import RolloutAudit
from evotrainer.studies.audit.units import PartRowGroup

if TYPE_CHECKING:
    import polars as pl

EXAMPLE = "tables are rollouts, metrics, findings, e.g. SELECT task, AVG(reward) FROM rollouts GROUP BY task"


def query(audit: RolloutAudit, sql: str) -> pl.DataFrame:
    """Answer of a SELECT over the tables `rollouts` (the published columns, and source, format), `metrics` and
    `findings` (source, subject, ...). ConfigError with the cause where the query cannot be answered.

    It is answered in a process of its own, whose memory and time are bounded: three words join a table with itself.
    """
    with tempfile.TemporaryDirectory(prefix="evotrainer-sql-") as folder:
        tables = {"metrics": _metrics(audit), "findings": _findings(audit)}
        return _answered(sql, partial(_rollouts, audit, Path(folder)), tables, Path(folder), "--sql", EXAMPLE)


def query_rollouts(rollouts: Sequence[Rollout], sql: str, example: str, seconds: float) -> pl.DataFrame:
    """The same over the one table `rollouts`; `example` ends the message of an error, `seconds`: at most."""
    with tempfile.TemporaryDirectory(prefix="evotrainer-sql-") as folder:

        def kept() -> list[dict[str, Any]]:
            return [{"source": "", "format": "", "parts": _written(rollouts, Path(folder) / "rollouts")}]

        return _answered(sql, kept, {}, Path(folder), "sql", example, seconds)


def _answered(
    sql: str,
    rollouts: Callable[[], list[dict[str, Any]]],
    tables: Mapping[str, pl.DataFrame],
    folder: Path,
    name: str,
    example: str,
    seconds: float = 0.0,
) -> pl.DataFrame:
    import polars as pl

    job: dict[str, Any] = {"sql": sql, "rollouts": rollouts(), "answer": f"{folder}/answer.ipc", "tables": {}}
    for table, frame in tables.items():
        job["tables"][table] = f"{folder}/{table}.ipc"
        frame.write_ipc(job["tables"][table])
    if trouble := _asked(job, seconds or SQL_SECONDS.value, not seconds):
        raise ConfigError(f"{name}: {trouble}; {example}")
    return pl.read_ipc(job["answer"])


def _asked(job: dict[str, Any], seconds: float, adjustable: bool) -> str:
    """Have the query answered; why it was not, or an empty text."""
    command = [sys.executable, "-m", "evotrainer.studies.audit.answer", str(SQL_MB.value), str(os.getpid())]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as p:
        try:
            out, err = p.communicate(json.dumps(job).encode(), seconds)
        except subprocess.TimeoutExpired:
            p.kill()
            more = f", or raise {SQL_SECONDS.variable}" if adjustable else ""
            return f"it took more than {seconds:,.0f} s; join less{more}"
    if p.returncode == 0:
        return str(json.loads(out)["trouble"])
    if p.returncode in (-signal.SIGABRT, -signal.SIGKILL) or b"MemoryError" in err or b"allocation" in err:
        return f"it needs more than {SQL_MB.value:,} MiB; join less, or raise {SQL_MB.variable}"
    return (err.decode("utf-8", "replace").strip().splitlines() or ["the query process ended"])[-1]


def _rollouts(audit: RolloutAudit, folder: Path) -> list[dict[str, Any]]:
    """For each source its name, format and Parquet parts; what is held in memory is written to `folder` first."""
    out = []
    for i, (source, opened) in enumerate(zip(audit.sources, audit.opened, strict=True)):
        parts = [str(p) for p in dict.fromkeys(u.part for u in opened.parts if isinstance(u, PartRowGroup))]
        for k, u in enumerate(u for u in opened.parts if isinstance(u, InMemoryRollouts)):
            parts += _written(u.held, folder / f"{i}-{k}")
        out.append({"source": clean_text(source.source), "format": source.format, "parts": parts})
    return out


def _written(rollouts: Sequence[Rollout], folder: Path) -> list[str]:
    """Parquet parts of them, in a new folder."""
    write_batches(batches(rollouts), folder)
    return [str(p) for p in stored_parts(folder)]


def _metrics(audit: RolloutAudit) -> pl.DataFrame:
    import polars as pl

    rows: list[dict[str, Any]] = [
        {"source": clean_text(s.source), "subject": clean_text(r.subject)}
        | {"metric": clean_text(m.name), "layer": m.layer, "value": m.value, "se": m.se, "n": m.n, "unit": m.unit}
        for s in audit.sources
        for r in s.readings
        for m in r.health.metrics
    ]
    schema = {"source": pl.String, "subject": pl.String, "metric": pl.String, "layer": pl.String}
    return pl.DataFrame(rows, schema=schema | {"value": pl.Float64, "se": pl.Float64, "n": pl.Int64, "unit": pl.String})


def _findings(audit: RolloutAudit) -> pl.DataFrame:
    import polars as pl

    rows: list[dict[str, Any]] = [
        {"source": clean_text(s.source), "subject": clean_text(r.subject), "claim": clean_text(f.claim)}
        | {"detector": f.detector, "kind": f.kind, "severity": f.severity, "validity": f.validity}
        for s in audit.sources
        for r in s.readings
        for f in r.health.findings
        if not f.missing
    ]
    names = ("source", "subject", "detector", "kind", "severity")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String) | {"validity": pl.Boolean, "claim": pl.String})
