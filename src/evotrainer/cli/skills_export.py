"""`evotrainer skills export`: skills as folders that any reader of Agent Skills can use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, SkillSource, no_skills
from evotrainer.errors import ConfigError
from evotrainer.records.output import print


def skills_export(
    source: SkillSource,
    *,
    out: Annotated[Path, typer.Option(help="Folder to write skill folders to.")],
    name: Annotated[list[str] | None, typer.Option(help="Skill, repeatable; default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Copy validated skills to a folder that any reader of Agent Skills can use.

    Example: evotrainer skills export runs/mine --out .agent/skills
    """
    from evotrainer.run.skills import collect
    from evotrainer.skills import write_skill

    every = collect([str(source)])
    if unknown := [n for n in name or [] if n not in every]:
        raise ConfigError(f"no skill {unknown[0]!r} in {source}; there are: {', '.join(every) or 'none'}")
    if not every:
        raise ConfigError(no_skills(source))
    written = {n: str(write_skill(every[n], out)) for n in name or every}
    print(json.dumps({"skills": written}, indent=1) if as_json else "\n".join(written.values()))
