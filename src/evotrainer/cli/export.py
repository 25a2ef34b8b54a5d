"""`evotrainer export`: writes a run's champion as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._common import RunFolder
from evotrainer.records.output import print


def export(
    folder: RunFolder,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; new or empty.")],
    *,
    branch: Annotated[str | None, typer.Option(help="Branch (b1) or version (v1); default: the champion.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Export the training with this seed; default: the middle one by search score.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Export an invalid branch, too; the card says so.")] = False,
) -> None:
    """Write the champion as a Hugging Face folder, with a model card: recipe, lineage, certification.

    Example: evotrainer export runs/mine my-model
    """
    from evotrainer import api
    from evotrainer.errors import ConfigError
    from evotrainer.extras.export import choose, is_policy_of
    from evotrainer.projections.caveats import caveat_line
    from evotrainer.projections.text import one_line

    run = api.open_run(folder)
    if is_policy_of(run.events(), str(out)):
        raise ConfigError(
            f"{out} stands where the folder to write is named: `evotrainer export {folder} DIR --branch {out}`; for a "
            "folder of this name give its whole path"
        )
    chosen = choose(folder, run.events(), branch, seed, anyway)
    run.export(out, branch, seed, anyway)
    caveat = "; ".join(filter(None, (chosen.unshown, caveat_line(run.caveats.get(chosen.branch, ())))))
    certified = "certified with a caveat" if caveat else "certified"
    status = "INVALID" if chosen.invalid else certified if chosen.certified else "not certified"
    print(f"wrote {out}: branch {chosen.branch} ({status}), trial {chosen.trial.trial}, {chosen.rule}")
    if chosen.worse:
        print(f"warning: {chosen.worse}; use the base policy (--branch base)")
    if caveat:
        print(f"caveat: {one_line(caveat, 1000)}")
    print(f"load it: AutoModelForCausalLM.from_pretrained({str(out)!r}); the card is {out / 'README.md'}")
