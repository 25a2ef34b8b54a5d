"""A user's JSONL file of stdin/stdout tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.envs.base import SPLITS, Task
from evotrainer.envs.code.task_list import ListSource
from evotrainer.envs.data.rows import Row, check_shares, field, read_jsonl, split_of
from evotrainer.errors import TaskSetError
from evotrainer.records.text import counted

FOUR_SPLITS: Mapping[str, float] = {"train": 0.7, "search": 0.1, "gate": 0.1, "cert": 0.1}


def pairs(value: Any, where: str) -> list[list[str]]:
    """Pairs of texts (stdin, stdout); TaskSetError otherwise."""
    ok = (
        isinstance(value, list)
        and value
        and all(isinstance(p, list) and len(p) == 2 and all(isinstance(x, str) for x in p) for p in value)
    )
    if not ok:
        raise TaskSetError(f'{where}: field \'tests\' must be a list of pairs of texts: [["stdin", "stdout"], ...]')
    return [list(p) for p in value]


def examples(prompt: str, visible: Sequence[Sequence[str]]) -> str:
    """The prompt with examples behind it."""
    blocks = [f"Input:\n{x.rstrip()}\nOutput:\n{y.rstrip()}\n" for x, y in visible]
    return prompt.rstrip("\n") + "\n\n" + "\n".join(blocks)


def _stdin_task(row: Row, where: str, options: Mapping[str, Any], shares: Mapping[str, float]) -> Task:
    prompt = field(row, "prompt", str, where)
    tests = pairs(row.get("tests"), where)
    visible = field(row, "visible", int, where) if "visible" in row else options["visible"]
    heldout = options["heldout"]
    if not visible >= 0 or visible + heldout >= len(tests):
        raise TaskSetError(
            f"{where}: {counted(len(tests), 'test')}, of which {visible} visible and {heldout} held out, leave none "
            "hidden; "
            "add tests or lower visible"
        )
    split = row.get("split") or split_of(prompt, shares)
    if split not in SPLITS:
        raise TaskSetError(f"{where}: split {split!r} is none of {', '.join(SPLITS)}")
    shown = tests[:visible]
    digest = hashlib.blake2b(prompt.encode(), digest_size=6).hexdigest()
    return Task(
        id=str(row.get("id", f"{options['name']}-{digest}")),
        split=str(split),
        prompt=examples(prompt, shown) if options["show"] and shown else prompt,
        data={
            "form": "stdin",
            "spec": prompt,
            "visible": shown,
            "heldout": tests[visible : visible + heldout],
            "hidden": tests[visible + heldout :],
            "gold": str(row.get("solution", "")),
            "perturb": options["perturb"],
        },
    )


def jsonl_source(
    path: Path | str,
    *,
    name: str = "jsonl",
    visible: int = 2,
    heldout: int = 0,
    splits: Mapping[str, float] | None = None,
    show: bool = False,
    perturb: bool = False,
    cpu_s: float = 2.0,
) -> ListSource:
    """A user's stdin/stdout tasks, one object per line: `prompt`, `tests` [[stdin, stdout], ...]; optional `id`,
    `split`, `visible` (count), `solution` (demonstrations of the train split).

    `visible`, `heldout`: how many of a row's first tests are of that kind, the rest is hidden. `splits`: shares for
    rows without a split. `show`: append the visible tests to the prompt (leave False where the prompt has them
    already). `perturb`: inputs are numbers or words separated by blanks, so that empty, permuted and doubled ones make
    sense.
    """
    shares = check_shares(splits or FOUR_SPLITS)
    options = {"name": name, "visible": visible, "heldout": heldout, "show": show, "perturb": perturb}
    rows = read_jsonl(Path(path).expanduser())
    if not rows:
        raise TaskSetError(f"{path} has no rows; write one task per line")
    tasks = [_stdin_task(row, f"{path}, row {n}", options, shares) for n, row in enumerate(rows, 1)]
    return ListSource(name, tasks, cpu_s=cpu_s, shown=show)
