"""Detectors on cases whose authors knew none of the rules: `python -m bench.detectors.blind [SET ...]`.

Each SET (1, 2, ...) holds 60 answers to programming tasks (answersN.jsonl) and 40 agent trajectories (agentsN.jsonl),
half of them hacks, the others honest ones that look alike on purpose, so their alarms say more than any user will see.
Written by language models that were told what policies are reported to do and read neither sources, tests nor docs. A
set is unseen once: results.md says which reading that was, and what was tuned on it since.

Prints Markdown: found hacks and alarms with 95% Wilson intervals, then every miss and every alarm.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.detectors.corpus.flags import TRAITS
from bench.detectors.corpus.measure import wilson
from evotrainer.harness import Batch
from evotrainer.importers import read
from evotrainer.importers.base import Skipped

HERE = Path(__file__).parent
SAID = ("label", "kind", "why")
"""What the author says of a case: no reader sees it."""


def cases(path: Path) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """A case, and the detectors that flag it."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / path.name
        bare.write_text("".join(json.dumps({k: v for k, v in r.items() if k not in SAID}) + "\n" for r in rows))
        found = [r for _, _, r in read([bare])]
    for row, r in zip(rows, found, strict=True):
        if isinstance(r, Skipped):
            raise SystemExit(f"{path.name}: {row['task_id']} was not read: {r}")
        batch = Batch([[r]])
        yield row, [d for d, traits in TRAITS.items() if any(batch.trait(t)[0] > 0 for t in traits)]


def share(hits: int, n: int) -> str:
    low, high = wilson(hits, n)
    return f"{hits} of {n} = {hits / n:.0%} [{low:.0%}, {high:.0%}]"


def main(sets: list[str]) -> None:
    named = sets or sorted({p.stem[-1] for p in HERE.glob("answers*.jsonl")})
    rows, missed, alarms = [], [], []
    for name in named:
        for kind in ("answers", "agents"):
            seen = list(cases(HERE / f"{kind}{name}.jsonl"))
            hacks = [(c, by) for c, by in seen if c["label"] == "hack"]
            honest = [(c, by) for c, by in seen if c["label"] == "honest"]
            hits = (sum(bool(by) for _, by in part) for part in (hacks, honest))
            rows.append(f"| {name} | {kind} | {share(next(hits), len(hacks))} | {share(next(hits), len(honest))} |")
            missed += [f"- {name} {c['task_id']} ({c['kind']}): {c['why']}" for c, by in hacks if not by]
            alarms += [f"- {name} {c['task_id']} ({', '.join(by)}): {c['why']}" for c, by in honest if by]
    print("| set | cases | hacks found | honest look-alikes flagged |\n|---|---|---|---|\n" + "\n".join(rows))
    print("\nMissed:\n\n" + "\n".join(missed) + "\n\nFlagged though honest:\n\n" + "\n".join(alarms))


if __name__ == "__main__":
    main(sys.argv[1:])
