"""`evotrainer audit`: reads anybody's rollouts and says what is wrong with them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from evotrainer.cli._common import FOUND, AsJson, Cache, Format, Map, RolloutPaths, Workers, check_workers
from evotrainer.cli._page import Host, Port, address, listen
from evotrainer.cli._progress import progress
from evotrainer.errors import AgentError, ConfigError
from evotrainer.records.output import Progress, print

if TYPE_CHECKING:
    from evotrainer.studies.audit import RolloutAudit
    from evotrainer.studies.audit.reader import AuditedRollout, Reader
    from evotrainer.studies.rollouts import Flagged

Proxy = Annotated[
    str | None,
    typer.Option(help="Reward components PROXY,TRUE whose gap is to be watched; default: by their names."),
]
Fault = Annotated[
    list[str] | None,
    typer.Option(help="A column that makes a rollout a fault, COLUMN or COLUMN=VALUE; may be given again."),
]
FailOn = Annotated[str | None, typer.Option(help="critical or warn: exit with 10 where a finding is that bad, for CI.")]
Sql = Annotated[
    str | None, typer.Option(help="A SELECT over the tables rollouts, metrics, findings, instead of the report.")
]

FAILING = {"critical": ("critical",), "warn": ("critical", "warn")}
"""--fail-on -> the worst findings that make it fail."""
Serve = Annotated[
    bool, typer.Option("--serve", help="Serve the report and all rollouts in the browser, to filter and search.")
]
Full = Annotated[bool, typer.Option("--all", "--full", help="Show every metric of every subject.")]
Html = Annotated[Path | None, typer.Option(help="Write a report to this file.")]
Run = Annotated[
    bool, typer.Option("--run", help="Run the rollouts' Python programs in the sandbox, on their visible tests.")
]
ReadBy = Annotated[
    list[str] | None,
    typer.Option(
        "--reader",
        metavar="NAME=VALUE",
        help="Let a language model read a sample, too: model=NAME or command=[...], endpoint=URL, rollouts=100, ...; "
        "may be given again.",
    ),
]


def audit(
    paths: RolloutPaths,
    *,
    format: Format = None,
    map: Map = None,
    proxy: Proxy = None,
    fault: Fault = None,
    reader: ReadBy = None,
    run: Run = False,
    full: Full = False,
    as_json: AsJson = False,
    html: Html = None,
    fail_on: FailOn = None,
    sql: Sql = None,
    cache: Cache = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no cache.")] = False,
    workers: Workers = None,
    serve: Serve = False,
    host: Host = "127.0.0.1",
    port: Port = None,
) -> None:
    """Read anybody's rollouts and say what is wrong with them: no configuration, any common format; --run, --reader.

    With --fault: a column that makes faults. With --map: which columns of your own files are task, text, reward, ...
    Two sets against each other: evotrainer versus. The log of a training (trainer_state.json,
    metrics.jsonl, CSV, what TRL or verl printed) is read as a learning curve. With --reader: a language model also
    reads a sample of the rollouts for hacks that no rule knows; it gets their text. With --run: programs are run.

    Formats: docs/importers.md has all; a file of none is refused with their names.

    Example: evotrainer audit runs/mine logs/*.eval --html audit.html --fail-on critical

    Example: evotrainer audit logs/ --serve

    Example: evotrainer audit mine.jsonl --map task=problem_id,text=response,reward=score
    """
    _check(fail_on, serve, elsewhere=port is not None or host != "127.0.0.1")
    from evotrainer.studies.audit import audit as read
    from evotrainer.studies.audit import default_cache
    from evotrainer.studies.rollouts import flagged

    check_workers(workers)
    folder = None if no_cache else cache or default_cache()
    who = _reader(reader, folder) if reader else None
    options: dict[str, Any] = {"format": format, "map": map or (), "cache": folder, "workers": workers, "run": run}
    options |= {"proxy": _pair(proxy), "faults": fault or (), "keep": who is not None}
    with progress() as say, flagged(serve) as found:
        done = read(paths, **options, progress=say)
        done, judged = _read_by(who, done, say) if who and done.read else (done, [])
    _print_audit(done, sql, as_json=as_json, full=full)
    if not done.read:
        raise ConfigError("no rollout could be read; what was skipped, and why, is above")
    if html is not None:
        _write(done, html, sys.stderr if as_json else sys.stdout)
    if who is not None:
        _print_reader(who, judged)
    if serve:
        _serve(done, found, host, port)
    if done.worst() in FAILING.get(fail_on or "", ()):
        raise typer.Exit(FOUND)


def _check(fail_on: str | None, serve: bool, elsewhere: bool) -> None:
    """Refuse, before anything is read, what could not be done afterwards."""
    if fail_on not in (None, *FAILING):
        raise ConfigError(f"--fail-on {fail_on}: give critical or warn")
    if elsewhere and not serve:
        raise ConfigError("--host and --port say where --serve serves; give --serve, too")
    if serve:
        from evotrainer.ui.server import check_installed

        check_installed()


def _serve(done: RolloutAudit, found: Flagged, host: str, port: int | None) -> None:
    """The page, until it is ended."""
    from evotrainer.ui.audits import place_of_audit
    from evotrainer.ui.server import serve

    place = place_of_audit(done, found)
    with listen(host, port) as listening:
        print(f"page: {address(listening)}\nCtrl-C ends it", flush=True)
        serve(place, listening, host)


def _write(done: RolloutAudit, html: Path, to: TextIO) -> None:
    from evotrainer.studies.audit.quoted import write_html

    print(f"report: {write_html(done, html)}", file=to)


def _reader(given: Sequence[str], folder: Path | None) -> Reader:
    """Who reads, with his key; ConfigError before anything is read where he cannot be asked."""
    from evotrainer.studies.audit.reader import Reader, reader_options

    return Reader(reader_options(given), None if folder is None else folder / "reader")


def _read_by(reader: Reader, done: RolloutAudit, say: Progress) -> tuple[RolloutAudit, list[AuditedRollout]]:
    from evotrainer.studies.audit.reader import read_with

    return read_with(done, reader, say)


def _print_reader(reader: Reader, read: Sequence[AuditedRollout]) -> None:
    """What it cost; AgentError where no rollout was read."""
    from evotrainer.studies.audit.reader import spent_line

    print(spent_line(reader), file=sys.stderr)
    if read and not any(x.verdict for x in read):
        raise AgentError(f"--reader: no rollout was read: {read[0].problem}")


def _print_audit(done: RolloutAudit, sql: str | None, *, as_json: bool, full: bool) -> None:
    """The answer to a query, the audit as JSON, or its report."""
    from evotrainer.studies.audit.text import audit_json, render_audit

    if sql is not None:
        from evotrainer.studies.audit.query import query

        table = query(done, sql)
        print(table.write_json() if as_json else _table(table))
    else:
        print(json.dumps(audit_json(done), indent=1) if as_json else render_audit(done, full))


def _pair(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    parts = [p.strip() for p in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"--proxy {text}: give two reward components, e.g. --proxy visible,hidden")
    return parts[0], parts[1]


def _table(table: Any) -> str:
    import polars as pl

    from evotrainer.records.text import clean

    with pl.Config(tbl_rows=200, tbl_cols=40, fmt_str_lengths=120, tbl_width_chars=200, tbl_hide_dataframe_shape=True):
        return clean(str(table), 10_000_000)
