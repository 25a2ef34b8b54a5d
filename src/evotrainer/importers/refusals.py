"""Why a file cannot be read: what it is instead, or which columns it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evotrainer.importers.base import Source
from evotrainer.importers.lenient_json import BLANK, TORN, is_compressed, opened, parse
from evotrainer.importers.rows import PLAIN_TABLE
from evotrainer.records.text import cut

CONVERT = 'convert it to JSON lines {"task": ..., "text": ..., "reward": ...}'
CODE = f"it is not opened, as that would run its code; {CONVERT}"
TORCH = f"is a PyTorch file (miles and slime write their rollouts so): {CODE}"
PICKLE = f"is a Python pickle (SkyRL's .pkl batches, old PyTorch): {CODE}"
KINDS: Sequence[tuple[bytes, str]] = (
    (rb"version https://git-lfs", "is a Git LFS pointer, not the file: run git lfs pull in its repository"),
    (rb"/annex/objects/", "is a git-annex pointer, not the file: run git annex get in its repository"),
    (rb"\xff\xfe|\xfe\xff", "is UTF-16 text; write it as UTF-8 first: iconv -f UTF-16 -t UTF-8 FILE"),
    (rb"\s*<(?i:!doctype html|html|head|\?xml)", "is a web page, not the file behind it; download the raw file"),
    (rb":W&B", "is W&B's own log of a run, which holds no rollouts; export the curve as CSV, or a table as JSON"),
    (rb"SQLite format 3", "is an SQLite database (Trackio, Optuna, ...); export its rollouts as CSV or JSON lines"),
    (rb"PK[\s\S]{28,200}data\.pkl", TORCH),
    (rb"\x80[\x02-\x05]", PICKLE),
    (rb"ARROW1|\xff{4}", "is an Arrow file (a saved data set); write it as Parquet"),
)
"""How a file begins (a regular expression) -> what it is and what to do."""
SUFFIXES = {**dict.fromkeys((".pt", ".pth", ".ckpt"), TORCH), **dict.fromkeys((".pkl", ".pickle"), PICKLE)}
"""What a file is by its name, however it begins: a damaged one is one, too."""
COLUMNS = "if it holds rollouts, say which column is what: --map task=COLUMN,text=COLUMN,reward=COLUMN"


def why_unread(source: Source, formats: Sequence[str]) -> str:
    """What a file is that no importer recognises, and what to do; begins with a verb."""
    path, head = source.path, source.head
    if path.is_file() and not path.stat().st_size:
        return "is empty; give a file with rollouts"
    kind = next((what for begin, what in KINDS if re.match(begin, head)), SUFFIXES.get(path.suffix.lower()))
    if kind:
        return kind.replace("FILE", str(path))
    if head[:2] == b"PK":
        return "is a zip file that is no whole .eval log; copy it again, or unpack it"
    if "tfevents" in path.name:
        return "holds TensorBoard events, which are no rollouts; export the curve as CSV"
    if torn := _torn(path):
        return torn
    known = f"known are {', '.join(formats)}; name it with --format, or {CONVERT}"
    if row := next(filter(None, PLAIN_TABLE.beginning(source)), None):
        return (
            f"is of no known rollout format: its columns are {cut(', '.join(map(str, row)), 300)}; {COLUMNS}; {known}"
        )
    if b"\0" in head:
        return f"is a binary file of no known kind (it begins {head[:8]!r}); {CONVERT}"
    if path.is_file() and not head.strip():
        return "holds nothing but white space; give a file with rollouts"
    if head.strip() and not head.strip(BLANK + b"{}[],"):
        return "holds nothing but empty objects or lists; give a file with rollouts"
    if head.lstrip(BLANK)[:1] in (b"{", b"["):
        try:
            parse(head.split(b"\n", 1)[0])
        except ValueError as e:
            return f"is broken JSON ({e}): was it cut off while written or copied? Copy it again"
    curve = "a learning curve alone is a training's log with steps and rewards (CSV, JSON, what was printed)"
    return f"is of no known rollout format; {known}; {curve}"


def _torn(path: Path) -> str | None:
    """Was a Parquet or a gzip file cut off?"""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as f:
            if f.read(4) == b"PAR1" and (f.seek(-4, 2), f.read())[1] != b"PAR1":
                return "is a Parquet file that was cut off: its directory at the end is missing; copy it again"
        if is_compressed(path):
            with opened(path) as f:
                f.read(1 << 20)
    except TORN as e:
        return f"is a gzip file that is damaged or was cut off ({e}); copy it again"
    return None
