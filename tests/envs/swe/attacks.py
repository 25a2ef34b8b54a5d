"""Changes that mend nothing and go for the grader by files that it may load (`tests/data/control_attacks.toml`)."""

from __future__ import annotations

import importlib.util
import marshal
from typing import Any

from evotrainer.envs.swe.cheats import Change
from evotrainer.sandbox.shell import Entry
from tests.tables import table

_DATA = table("control_attacks")
BASE: dict[str, str] = _DATA["repository"]["base"]
TESTS: dict[str, str] = _DATA["repository"]["tests"]
WRONG, DEPENDENCY, LUCKY, EARLY, ENTRY = (
    _DATA["texts"][name] for name in ("WRONG", "DEPENDENCY", "LUCKY", "EARLY", "ENTRY")
)
RIGHT = WRONG.replace("-", "+")


def link(path: str, target: str) -> Entry:
    return Entry(path, "l", 0o777, target.encode())


def of(files: dict[str, str | bytes | Entry]) -> Change:
    """Texts, bytes and links by path."""
    return {
        p: e if isinstance(e, Entry) else Entry(p, "f", 0o644, e if isinstance(e, bytes) else e.encode())
        for p, e in files.items()
    }


def _compiled(text: str, path: str) -> bytes:
    """A .pyc that no importer compares with its source."""
    code = compile(text, path, "exec")
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + b"\0" * 8 + marshal.dumps(code)


def _read(path: str, found: Any) -> str | Entry:
    if isinstance(found, dict):
        return link(path, found["link"])
    return str(found).replace("<LUCKY>\n", LUCKY).replace("<EARLY>\n", EARLY)


ATTACKS: dict[str, Change] = {
    name: of({p: _read(p, found) for p, found in files.items()}) for name, files in _DATA["attacks"].items()
} | {
    "sitecustomize compiled": of({"lucky.py": LUCKY, "sitecustomize.pyc": _compiled(EARLY, "sitecustomize.py")}),
    "a cache that no one compares with its source": of(
        {"src/zoo/__pycache__/core.cpython-311.pyc": _compiled(RIGHT, "/w/repo/src/zoo/core.py")}
    ),
    "a module of the library, compiled": of({"lucky.py": LUCKY, "argparse.pyc": _compiled(EARLY, "argparse.py")}),
}
"""Name -> what the policy leaves. Each makes a trusting grader pass tests that fail."""
INERT = {
    "lucky.py", "src/zoo/lucky.py", "src/x.py", "src/notes.txt", "notes/__init__.py", "notes/entry_points.txt",
    "notes/PKG-INFO",
}  # fmt: skip
"""Files of the attacks that do nothing unless a control file names them."""
RESIDUES: dict[str, str] = _DATA["residues"]
"""Name -> text of `src/zoo/core.py` that, while it is graded, leaves something for those that are graded later."""
