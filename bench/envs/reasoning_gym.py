"""Every data set of reasoning-gym through our environment: are our scores its scorer's?

    python -m bench.envs.reasoning_gym [--items 50] [NAME ...]

For each item five completions: its own answer, another item's, one in no tag, an empty one and words. A row of the
table is a data set; `differ` counts completions whose score is not what its own scorer gives, and must be 0.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

from evotrainer.envs import open_environment
from evotrainer.envs.base import SPLITS
from evotrainer.envs.reasoning_gym import DATA, SCHEME, data_set, load
from evotrainer.errors import EvoTrainerError


class Compared(NamedTuple):
    """One data set."""

    name: str
    items: int = 0
    completions: int = 0
    differ: int = 0
    solved: int = 0
    """Items whose own answer gets the full score; of some data sets the answer is not told."""
    levels: int = 0
    seconds: float = 0.0
    problem: str = ""


def compare(name: str, items: int) -> Compared:
    """All splits together have `items` items; TaskSetError where there are not so many."""
    begun, each = time.monotonic(), max(1, items // len(SPLITS))
    sizes = dict.fromkeys(SPLITS, each) | {"train": items - 3 * each}
    env: Any = open_environment({"name": SCHEME + name, **sizes})
    theirs = data_set(name, 0, 64, {})
    tasks = [t for s in SPLITS for t in env.tasks(s)]
    golds = [t.data["entry"]["answer"] for t in tasks]
    differ = solved = done = 0
    for i, t in enumerate(tasks):
        own, other = golds[i], golds[(i + 1) % len(golds)]
        for text in (f"so <answer>{own}</answer>", f"<answer>{other}</answer>", str(own), "<answer></answer>", "no"):
            e = env.reset(t, {})
            env.step([e], [text], ["stop"])
            (score,) = env.score([e])
            answer = load().utils.extract_answer(text)
            try:
                expected = float(theirs.score_answer(answer, t.data["entry"]))
            except Exception:
                expected = 0.0
            differ += score.components["score"] != expected
            solved += text.startswith("so") and score.outcome == "correct"
            done += 1
    levels = len(env.knobs.get("difficulty", ())) - 1
    return Compared(name, len(tasks), done, differ, solved, max(0, levels), time.monotonic() - begun)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--items", type=int, default=50)
    asked = parser.parse_args()
    rows = []
    for name in asked.names or sorted(set(load().factory.DATASETS) - set(DATA)):
        try:
            rows.append(compare(name, asked.items))
        except EvoTrainerError as e:
            rows.append(Compared(name, problem=str(e)))
        print(rows[-1], flush=True)
    print("\n| data set | items | completions | scores that differ | own answers solved | levels | s |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        told = r.problem or f"{r.items} | {r.completions} | {r.differ} | {r.solved} | {r.levels} | {r.seconds:.1f}"
        print(f"| {r.name} | {told} |")
    print(
        f"\n{len(rows)} data sets, {sum(r.completions for r in rows)} completions, {sum(r.differ for r in rows)} differ"
    )


if __name__ == "__main__":
    main()
