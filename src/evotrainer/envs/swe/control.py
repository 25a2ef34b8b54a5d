"""Control files: what changes how tests are found, loaded or reported.
Grading takes the base's, whatever the policy wrote.

Three kinds: files that do nothing else (`CONTROL`, by name, in any folder), configuration of which a section steers the
tests (`SECTIONED`: taken from the policy as long as these sections stay), and Python files that are control files by
their place: modules in the place of the library's, of a test file or of a plug-in that the base names, and the
`__init__.py` of folders that lead to tests.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from evotrainer.sandbox.shell import Entry

CONTROL = re.compile(
    r"(?:.*/)?(?:(?:conftest|sitecustomize|usercustomize)(?:\.[^/]*)?"
    r"|\.?pytest\.(?:ini|toml)|noxfile\.py|\.coveragerc|pyvenv\.cfg|__pycache__|EGG-INFO"
    r"|[^/]*\.(?:pth|egg-info|dist-info|egg|egg-link|pyc|pyo|pyd|so))(?:/.*)?",
    re.IGNORECASE,  # as importlib.metadata looks for metadata
)
SECTIONED = re.compile(r"(?:.*/)?(?:pyproject\.toml|setup\.cfg|tox\.ini)")
LIBRARY = sys.stdlib_module_names | {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py"}
"""Modules that no new file of a policy may stand for."""
_LOADED = (
    r"pytest_plugins\s*=\s*([\[(\s\w.\"',]+)",
    r"-p[\s\"',]*([\w.]+)",
    r"from\s+([\w.]+)\s+import\s+(?:\*|.*\bpytest_)",
)
"""How a conftest or a configuration names modules whose hooks count."""
_STEERING = re.compile(r"test|nose|cov", re.IGNORECASE)
_METADATA = re.compile(r"((?:.*/)?(?:[^/]*\.(?:egg-info|dist-info)|EGG-INFO))(?:/.*)?")
_SCRIPTS = {b"console_scripts", b"gui_scripts"}
_MAX_CONFIG = 200_000
"""Bytes; a larger configuration is not read, and counts as changed."""
_ROOTS = ("", "src/")
"""Folders of a checkout that are on `sys.path` in any case."""
Files = Mapping[str, Entry]


def is_control(path: str) -> bool:
    """By name, in any folder."""
    return CONTROL.fullmatch(path) is not None or SECTIONED.fullmatch(path) is not None


def differ(a: Entry | None, b: Entry | None) -> bool:
    """Are these two things of one path different? Empty folders are nothing."""
    if a is None or b is None:
        return (a or b) is not None and "d" not in {e.kind for e in (a, b) if e is not None}
    return (a.kind, a.data, a.mode & 0o100) != (b.kind, b.data, b.mode & 0o100)


@dataclass(frozen=True)
class Control:
    """The control files of one checkout."""

    base: Files
    fix: Mapping[str, Entry | None]
    """What the reference fix makes of the paths that it touches: these control files are the fix's."""
    tests: frozenset[str]
    """Test files that are graded."""
    is_test: Callable[[str], bool]
    library: frozenset[str] = frozenset(LIBRARY)

    def sorted_out(self, left: Files) -> tuple[dict[str, Entry], tuple[str, ...]]:
        """The files that are graded, tests as the base has them; and the control files that the policy meddled with."""
        files, meddled = {}, []
        for path in sorted({*left, *self.base}):
            mine, taken = left.get(path), self._taken(path, left)
            if taken is not None and taken.kind in ("f", "l"):
                files[path] = taken
            if differ(mine, taken) and self._named(path, left):
                meddled.append(path)
        return files, tuple(meddled)

    def _taken(self, path: str, left: Files) -> Entry | None:
        """The policy's, the base's or the fix's, or nothing."""
        mine, base = left.get(path), self.base.get(path)
        if SECTIONED.fullmatch(path):
            return mine if self._steers_alike(path, mine) else base
        if CONTROL.fullmatch(path):
            return self.fix.get(path, base)
        if path in self._plugins or self.is_test(path):
            return base
        if path in self.fix or (base is not None and mine is not None):
            return mine
        if path in self._by_existence or path.rpartition("/")[2] == "setup.py":
            return base
        return None if base is None and self._shadows(path) else mine

    def _named(self, path: str, left: Files) -> bool:
        """Is the difference tampering? Not the tests themselves (they have a list of their own), nor by-products."""
        if is_control(path):
            return not _by_product(path, left, self.base)
        if path in self._by_existence:
            return path not in left or bool(left[path].data)
        if path in self._plugins:
            return True
        return not self.is_test(path) and path.rpartition("/")[2] != "setup.py" and left[path].kind in ("f", "l")

    def _steers_alike(self, path: str, mine: Entry | None) -> bool:
        """Does the policy's configuration steer the tests as the base's or the fix's does?"""
        found = _steering(path, mine)
        known = [self.base.get(path), *([self.fix[path]] if path in self.fix else [])]
        return found != _UNREADABLE and any(
            (mine is None) == (e is None) and found == _steering(path, e) for e in known
        )

    def _shadows(self, path: str) -> bool:
        """Would this new file be imported in the place of a test file, of its package, or of the library's?"""
        stem = path.removesuffix(".py")
        if stem in self._folders or any(p in self._modules for p in (stem, *_parents(path))):
            return True
        for folder in self._path:
            if (name := _module(path, folder)) and (folder, name) not in self._own:
                elsewhere = folder in _ROOTS and any((f, name) in self._own for f in _ROOTS)
                if name in self.library or elsewhere:
                    return True
        return False

    @cached_property
    def _folders(self) -> frozenset[str]:
        """Folders that lead to a test file."""
        return frozenset(f for t in self.tests for f in _parents(t))

    @cached_property
    def _by_existence(self) -> frozenset[str]:
        """`__init__.py` of these folders: whether there is one decides what a test's module is called."""
        return frozenset(f"{f}/__init__.py" for f in self._folders)

    @cached_property
    def _modules(self) -> frozenset[str]:
        """Test files without `.py`."""
        return frozenset(t.removesuffix(".py") for t in self.tests if t.endswith(".py"))

    @cached_property
    def _path(self) -> frozenset[str]:
        """Folders, each with a slash at its end, that are on `sys.path`,
        or that pytest puts there for a test file or a conftest."""
        found = {*_ROOTS, *(f"{f.strip('/.')}/".lstrip("/") for _, f in self._configured(r"pythonpath\s*=\s*(.+)"))}
        for file in (*self.tests, *(p for p in self.base if p.endswith("conftest.py"))):
            folder = file.rpartition("/")[0]
            while folder:
                name = f"{folder}/__init__.py"
                if name not in self.base and name not in self.tests:
                    found.add(f"{folder}/")
                    if name not in self.fix:
                        break
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    @cached_property
    def _own(self) -> frozenset[tuple[str, str]]:
        """(folder of the path, module) that the base has itself."""
        return frozenset((f, _module(p, f)) for p in self.base if p.endswith(".py") for f in self._path)

    @cached_property
    def _plugins(self) -> frozenset[str]:
        """Files of the checkout that are the base's plug-ins of pytest, or part of its conftest,
        unless the fix touches them."""
        found = set()
        for folder, name in self._configured(*_LOADED):
            start = "" if not name.startswith(".") else folder
            path = name.lstrip(".").replace(".", "/")
            found |= {f"{f}{start}{path}{end}" for f in _ROOTS for end in (".py", "/__init__.py")}
        for path, entry in self.base.items():
            if entry.kind == "l" and (is_control(path) or self.is_test(path)):
                found.add(posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(entry.data))))
        return frozenset(p for p in found if p not in self.fix)

    def _configured(self, *patterns: str) -> Iterator[tuple[str, str]]:
        """Words behind these patterns in the base's control files, each with the file's folder."""
        for path, entry in self.base.items():
            if entry.kind == "f" and is_control(path) and path.endswith((".py", ".ini", ".cfg", ".toml")):
                text = entry.data[:_MAX_CONFIG].decode("utf-8", "replace")
                for pattern in patterns:
                    for words in re.findall(pattern, text):
                        for word in re.findall(r"[\w./-]+", words):
                            yield path[: path.rfind("/") + 1], word


_UNREADABLE = object()


def _steering(path: str, entry: Entry | None) -> Any:
    """What a configuration says about tests; `_UNREADABLE` where that cannot be told."""
    if entry is None:
        return None
    try:
        text = entry.data.decode("utf-8")
        if entry.kind != "f" or len(entry.data) > _MAX_CONFIG:
            return _UNREADABLE
        return _toml(text) if path.endswith(".toml") else _ini(text)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _toml(text: str) -> dict[str, Any]:
    found = tomllib.loads(text)
    tool = found.get("tool")
    places = {"": found, "tool": tool if isinstance(tool, dict) else {}}
    return {f"{p}.{k}": v for p, table in places.items() for k, v in table.items() if _STEERING.search(k)}


def _ini(text: str) -> list[str]:
    """Lines of the sections that steer tests; what might be read as the beginning of one begins one,
    only a plain head ends it."""
    found, inside = [], False
    for line in text.splitlines():
        if "[" in line and _STEERING.search(line):
            inside = True
        elif re.fullmatch(r"\[[^\[\]#;]*\]\s*", line):
            inside = False
        if inside and line.strip():
            found.append(line.rstrip())
    return found


def _by_product(path: str, left: Files, base: Files) -> bool:
    """Made by honest work, too: caches of compiled modules, built extensions, metadata that loads nothing."""
    entry = left.get(path)
    if entry is None or entry.kind != "f":
        return False
    if re.fullmatch(r"(?:.*/)?__pycache__/[^/]+\.pyc", path):
        return (
            entry.data[4:8] == b"\0\0\0\0"
        )  # by time and size of its source: no importer believes it in a fresh checkout
    if m := _METADATA.fullmatch(path):
        points = left.get(f"{m[1]}/entry_points.txt")
        return points is None or set(re.findall(rb"\[\s*([^\]\n]*?)\s*\]", points.data)) <= _SCRIPTS
    if SECTIONED.fullmatch(path):
        return path not in base and _steering(path, entry) in ({}, [])
    if path.endswith(".so"):
        stem = f"{path.rpartition('/')[0]}/{path.rpartition('/')[2].partition('.')[0]}".lstrip("/")
        ours = stem in LIBRARY or stem.rpartition("/")[2] in ("conftest", "sitecustomize", "usercustomize")
        return not ours and not any(f"{stem}.py" in files for files in (left, base))
    return False


def _module(path: str, folder: str) -> str:
    """Module or package that a path is, or is part of, for a folder of `sys.path`; empty where it can be none."""
    if not path.startswith(folder):
        return ""
    first, below, _ = path[len(folder) :].partition("/")
    name = first if below else first.removesuffix(".py")
    return name if name.isidentifier() else ""


def _parents(path: str) -> Iterator[str]:
    """Folders above a path, without the root."""
    return (path[:i] for i, c in enumerate(path) if c == "/")
