"""`evotrainer audit-branch`: does a branch's score rest on a shortcut?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from evotrainer.cli._common import AsJson, Plain, RunFolder, console
from evotrainer.records.output import print


def audit_branch(
    folder: RunFolder,
    branch: Annotated[str, typer.Argument(help="Branch, e.g. b1.")],
    *,
    capability: Annotated[
        list[str] | None,
        typer.Option(help="Capability to close, repeatable; default: every shortcut its evaluations left open."),
    ] = None,
    as_json: AsJson = False,
    plain: Plain = False,
) -> None:
    """Does a branch's score rest on a shortcut? Evaluates it again with the shortcut closed, on the same tasks.

    A confirmed shortcut makes the branch and all its descendants invalid, also after promotion; the champion falls back
    to the last valid version. The ledger keeps the story: `evotrainer why RUN BRANCH`.

    Example: evotrainer audit-branch runs/mine b2 --capability history
    """
    from evotrainer import api
    from evotrainer.projections.run_facts import audit_text
    from evotrainer.views.terminal import LiveView

    with LiveView(folder, console(stderr=True), plain=plain or as_json) as view:
        audits, tree = api.audit_branch(folder, branch, capability or [], view=view)
    if as_json:
        standing = {"invalid": tree.invalid.get(branch), "champion": tree.champion}
        print(json.dumps({"audits": [a.model_dump(mode="json") for a in audits], **standing}, indent=1))
        return
    for a in audits:
        print(f"audit of {a.branch}: {audit_text(a)}")
    if branch in tree.invalid:
        fallen = [b for b in tree.descendants(branch) if b in tree.invalid]
        print(f"{branch} is invalid" + (f", and with it {', '.join(fallen)}" if fallen else ""))
        print(f"champion: {tree.champion}")
    else:
        print(f"{branch} stays valid")
    run = api.open_run(folder)
    if run.closed:
        print(f"report: {run.report()}")
