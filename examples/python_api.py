"""The Python API: make a task, run it, read what was found. Runs in about two minutes of CPU.

python examples/python_api.py [folder]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from evotrainer import api
from evotrainer.cli.init import init


def main(folder: Path, overrides: list[str]) -> api.Run:
    """Scaffold a task in `folder`, run it, print what a script would want to know."""
    init(folder / "task", name="letters")
    run = api.start(folder / "task" / "task.toml", folder / "run", overrides)

    print("champion:", run.champion)
    for v in run.verdicts:
        effect = f"{100 * v.effect.mean:+.1f} points" if v.effect else "no effect measured"
        print(f"{v.branch}: {v.kind}, {effect}")
    certified = run.certification
    assert certified is not None
    for row in certified.rows:
        print(f"{row.name:9} {100 * row.score:.1f}% [{100 * row.low:.1f}, {100 * row.high:.1f}] on cert")
    for branch, found in run.caveats.items():
        print(f"caveat on {branch}:", "; ".join(c.text for c in found))
    print("everything holds:", run.verify().ok)
    print("report:", run.report())
    return run


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="evotrainer-"))
    main(target, sys.argv[2:])
