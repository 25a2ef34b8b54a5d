"""`evotrainer skills validate`: does every claim follow from its trials, every trial from its ledger?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from evotrainer.cli._common import AsJson, SkillSource, no_skills
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.records.output import print
from evotrainer.records.text import counted


def skills_validate(
    source: SkillSource,
    *,
    run: Annotated[
        list[Path] | None, typer.Option(help="Run folder whose ledger the trials are compared with, repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check format and evidence: every claim must follow from its trials, every trial from its ledger row.

    Example: evotrainer skills validate skills/ --run runs/mine
    """
    from evotrainer.skills import check_skill, find_skills

    at_hand = [*(run or []), *([source] if (source / "ledger.db").is_file() else [])]
    ledgers = dict(map(_rows, at_hand))
    folders = find_skills(source)
    if not folders:
        raise ConfigError(no_skills(source))
    found: dict[str, list[str]] = {}
    seen = trials = 0
    for folder in folders:
        found[folder.name], checked = check_skill(folder, ledgers)
        seen += checked
        trials += _count(folder)
    wrong = sum(map(len, found.values()))
    if as_json:
        summary = {"skills": found, "trials": trials, "checked_against_ledgers": seen, "ok": not wrong}
        print(json.dumps(summary, indent=1))
    else:
        for name, problems in found.items():
            print(f"[{'FAIL' if problems else 'ok'}] {name}")
            for p in problems:
                print(f"       {p}")
        print(f"{counted(len(folders), 'skill')}, {counted(trials, 'trial')}", end="")
        print(f", of which {seen} against the ledger of their run", end="")
        print(f"; {trials - seen} not: give their runs with --run" if trials > seen else "")
    if wrong:
        raise IntegrityError(f"{source}: {counted(wrong, 'problem')} found; see above")


def _rows(folder: Path) -> tuple[str, dict[str, Any]]:
    """A run's name, and its ledger's rows by id."""
    from evotrainer import api

    with api.open_run(folder).ledger() as ledger:
        if problems := ledger.verify():
            raise IntegrityError(f"{folder}: {problems[0]}; a ledger that does not hold proves nothing")
        events = ledger.events()
        rows = {e.id: r for e in events if (r := ledger.row(e.id))}
    return (events[0].hash if events else ""), rows


def _count(folder: Path) -> int:
    from evotrainer.errors import StoreError
    from evotrainer.skills import read_skill

    try:
        return len(read_skill(folder).trials)
    except StoreError:
        return 0
