"""What `evotrainer audit` and `evotrainer import` do; user errors travel to `cli.main`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.records.output import print
from evotrainer.records.text import clean

FOUND = 10
"""Exit code where a finding reaches `--fail-on`."""


def audit(
    paths: Sequence[Path],
    *,
    format: str | None,
    proxy: str | None,
    as_json: bool,
    html: Path | None,
    fail_on: str | None,
    sql: str | None,
    cache: Path | None,
    keep: bool,
    workers: int | None,
    full: bool,
) -> int:
    """Read, report, and answer with the exit code: 0, or FOUND."""
    if fail_on not in (None, "critical", "warn"):
        raise ConfigError(f"--fail-on {fail_on}: give critical or warn")
    from evotrainer.studies.audit import audit as read
    from evotrainer.studies.audit import default_cache

    _check_workers(workers)
    folder = (cache or default_cache()) if keep else None
    with _progress() as say:
        done = read(paths, format=format, proxy=_pair(proxy), cache=folder, workers=workers, progress=say)
    if sql is not None:
        from evotrainer.studies.audit.query import query

        table = query(done, sql)
        print(table.write_json() if as_json else _table(table))
    elif as_json:
        from evotrainer.studies.audit.text import audit_json

        print(json.dumps(audit_json(done), indent=1))
    else:
        from evotrainer.studies.audit.text import render_audit

        print(render_audit(done, full))
    if html is not None:
        from evotrainer.studies.audit.quoted import write_html

        print(f"report: {write_html(done, html)}", file=sys.stderr if as_json else sys.stdout)
    if not done.rollouts:
        raise ConfigError("no rollout could be read; what was skipped, and why, is above")
    failing = {"critical": ("critical",), "warn": ("critical", "warn")}.get(fail_on or "", ())
    return FOUND if done.worst() in failing else 0


def import_rollouts(paths: Sequence[Path], out: Path, *, format: str | None, workers: int | None = None) -> None:
    """Copy anybody's rollouts into a store of ours; says what was skipped and why."""
    from evotrainer.records.reading import is_store
    from evotrainer.studies.audit.bulk import bulk_import
    from evotrainer.studies.audit.engine import items

    if out.exists() and not (
        out.is_dir() and (is_store(out) or all(f.name.startswith(".import-") for f in out.iterdir()))
    ):
        raise ConfigError(f"{out} exists and is no rollout store; choose a new folder")
    _check_workers(workers)
    found, unknown = items(paths, format)
    with _progress() as say:
        done = bulk_import(found, out, workers, (lambda i, n: say("importing", i, n)) if say else None)
    skipped = [*unknown, *done.skipped]
    for s in skipped[:20]:
        print(clean(f"skipped {s.where}: {s.reason}", 2000), file=sys.stderr)
    if len(skipped) > 20:
        print(f"... and {len(skipped) - 20:,} more", file=sys.stderr)
    said = ", ".join(f"{c:,} {name}" for name, c in done.formats.most_common()) or "none"
    print(f"wrote {done.rollouts:,} rollouts to {out} ({said}); skipped {len(skipped):,}")
    if not done.rollouts:
        raise ConfigError("nothing could be imported; the reasons are above")


def _check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: give at least 1")


def _pair(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    parts = [p.strip() for p in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"--proxy {text}: give two reward components, e.g. --proxy visible,hidden")
    return parts[0], parts[1]


def _table(table: Any) -> str:
    import polars as pl

    with pl.Config(tbl_rows=200, tbl_cols=40, fmt_str_lengths=120, tbl_width_chars=200, tbl_hide_dataframe_shape=True):
        return clean(str(table), 10_000_000)


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar on a terminal's stderr; nothing elsewhere."""
    from evotrainer.records.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        job = bar.add_task("", total=1)

        def say(what: str, done: int, of: int) -> None:
            bar.update(job, description=what[-60:], completed=done, total=max(1, of))

        yield say
