"""`evotrainer verify`: checks a run's ledger and files, and recomputes its numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.records.output import line, print
from evotrainer.records.text import counted

if TYPE_CHECKING:
    from evotrainer.verify import VerifyReport


def verify(
    folder: RunFolder,
    *,
    head: Annotated[
        str, typer.Option(help="Hash of a last event that was noted earlier; the ledger must contain it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check the ledger's hash chain and all files it names, and compute scores, verdicts and audits again.

    Example: evotrainer verify runs/mine --head 5600eb6d0c2d88d7
    """
    from evotrainer import api
    from evotrainer.errors import IntegrityError

    result = api.open_run(folder).verify(head)
    if as_json:
        print(json.dumps(asdict(result) | {"folder": str(result.folder), "ok": result.ok}, indent=1))
    else:
        _print_report(result, head)
    if not result.ok:
        raise IntegrityError(f"{folder}: {counted(len(result.problems), 'problem')} found; see above")


def _one(things: str) -> str:
    return {"branches": "branch", "policies": "policy"}.get(things, things.removesuffix("s"))


def _print_report(result: VerifyReport, head: str) -> None:
    """What was checked, and what does not hold."""
    print("checked " + ", ".join(f"{n} {what if n != 1 else _one(what)}" for what, n in sorted(result.checked.items())))
    noted = ", and the noted one is in it" if head and not any(p.area == "head" for p in result.problems) else ""
    if result.head or result.ok:
        print(f"head {result.checked['events']} {result.head}{noted}")
    if result.chain_only:
        print("protected by the hash chain alone: " + ", ".join(result.chain_only))
    if result.unchecked:
        print("no check knows these kinds of event: " + ", ".join(result.unchecked))
    for text in result.notes:
        print(f"note: {line(text)}")
    for p in result.problems:
        print(f"[FAIL] {p.area}: {line(p.message)}")
    if result.ok and not result.checked["events"]:
        print("the ledger is empty: the run was stopped before its first event; `evotrainer resume` begins it")
    elif result.ok and result.locked:
        print("everything that can be read holds; the rest is checked once the run has closed")
    elif result.ok:
        print("everything holds: hash chain, recipes, single factors, policies, rollouts, scores, verdicts")
