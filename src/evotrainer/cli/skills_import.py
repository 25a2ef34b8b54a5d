"""`evotrainer skills import`: what runs taught, merged into a library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson
from evotrainer.records.output import print
from evotrainer.records.text import counted


def skills_import(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Run folders or libraries.")],
    *,
    library: Annotated[Path, typer.Option(help="Library to merge into; made where it is not there.")],
    as_json: AsJson = False,
) -> None:
    """Merge evidence into a library: the same skill's trials join, none counts twice.

    Example: evotrainer skills import runs/* --library skills/
    """
    from evotrainer.records.skills import CLAIMS
    from evotrainer.run.skills import collect
    from evotrainer.skills import merge, read_library, write_skill

    library.mkdir(parents=True, exist_ok=True)
    before = read_library(library)
    new = collect([str(s) for s in sources])
    merged = []
    for name, skill in merge(before.values(), new.values()).items():
        was = before.get(name)
        if was is not None and was.trials == skill.trials:
            continue
        write_skill(skill, library)
        gained = len(skill.trials) - (len(was.trials) if was else 0)
        row = {"skill": name, "change": "updated" if was else "added", "trials": gained}
        merged.append(row | {"claim": skill.claim, "scope": skill.scope})
        if not as_json:
            print(f"{row['change']} {name}: {counted(gained, 'more branch')}, {CLAIMS[skill.claim]}, {skill.scope}")
    there = len(read_library(library))
    summary = {"library": str(library), "skills": there, "merged": merged}
    print(json.dumps(summary, indent=1) if as_json else f"{counted(there, 'skill')} in {library}")
