"""`evotrainer verl checkpoints`: what a verl training saved."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from evotrainer.cli._common import AsJson, VerlFolder, VerlVenv
from evotrainer.records.output import print


def verl_checkpoints(folder: VerlFolder, *, venv: VerlVenv = None, as_json: AsJson = False) -> None:
    """List saved steps with sizes, the one that a launch resumes from, and the command that exports a step.

    Example: evotrainer verl checkpoints runs/verl
    """
    from evotrainer.extras.verl.checkpoints import checkpoints, merge_command
    from evotrainer.extras.verl.folder import read_manifest
    from evotrainer.extras.verl.venv import candidate

    read_manifest(folder)
    found = checkpoints(folder.resolve())
    python = candidate(venv)
    if as_json:
        rows = [{**asdict(c), "path": str(c.path), "merge": merge_command(python, c, _merged(c.path))} for c in found]
        print(json.dumps(rows, indent=1))
        return
    if not found:
        print(f"no checkpoint in {folder / 'checkpoints'} yet")
        return
    for c in found:
        words = [f"step {c.step:>5}", f"{c.bytes / 1e6:>12,.1f} MB"]
        words += ["latest: a launch resumes from it"] if c.latest else []
        words += [f"incomplete: {', '.join(c.missing)} missing"] if c.missing else []
        words += ["holds Hugging Face weights"] if c.merged else []
        print("  ".join(words))
    best = next((c for c in reversed(found) if not c.missing), None)
    if best is not None:
        print(f"as a Hugging Face folder: {merge_command(python, best, _merged(best.path))}")


def _merged(path: Path) -> Path:
    return path.parent.parent / "policy" / path.name
