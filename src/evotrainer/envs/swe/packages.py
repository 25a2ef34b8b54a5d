"""Packages for the tests of checkouts: what a folder of them offers, and pytest for shells: a copy of the installed one
and of what it needs, pure Python, that every user can read."""

from __future__ import annotations

import compileall
import configparser
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from py_compile import PycInvalidationMode

from evotrainer.errors import TaskSetError
from evotrainer.records.regular_file import read_text
from evotrainer.sandbox.interpreter import cache_root

_NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
PLACE = "/opt/pytest"
"""Where a shell shows it."""


def pytest_folder() -> Path:
    """The copy's folder, made once per version; TaskSetError where pytest is not installed or cannot be copied."""
    try:
        found = [metadata.distribution(name) for name in _NEEDED]
    except metadata.PackageNotFoundError as error:
        raise TaskSetError(
            f"{error.name} is not installed: pip install pytest, name an interpreter that has it (environment.python), "
            'or use environment.tests = "unittest"'
        ) from None
    root = cache_root()
    target = root / "-".join(["pytest", sys.implementation.cache_tag or "py", *(d.version for d in found)])
    if target.is_dir():
        return target
    try:
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="pytest-", dir=root))
        for distribution in found:
            for file in distribution.files or ():
                source = Path(str(distribution.locate_file(file)))
                if file.parts[0] == ".." or "__pycache__" in file.parts or not source.is_file():
                    continue
                place = work / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
        compileall.compile_dir(work, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        for path in (root, work, *work.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.rename(work, target)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        if not target.is_dir():
            raise TaskSetError(f"pytest cannot be copied to {root}: {error}; make that folder writable") from error
    return target


def module_names(folder: Path) -> frozenset[str]:
    """Top-level modules and packages of a site-packages folder."""
    names = (p.name.partition(".")[0] for p in folder.iterdir() if p.is_dir() or p.suffix in (".py", ".so"))
    return frozenset(n for n in names if n.isidentifier())


def plugins_in(folder: Path) -> list[str]:
    """Modules that distributions in the folder offer to pytest as plug-ins."""
    found = []
    for file in sorted(folder.glob("*-info/entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
        with suppress(OSError, ValueError, configparser.Error):
            parser.read_string(read_text(file))
            if parser.has_section("pytest11"):
                found += [module.partition(":")[0].strip() for _, module in parser.items("pytest11")]
    return found
