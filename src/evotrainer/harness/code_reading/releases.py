"""The project that an agent works on, brought in another version: installed, downloaded or cloned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from evotrainer.harness.code_reading import shell

FETCHERS = frozenset({"curl", "wget", "http", "lynx", "aria2c"})
DOWNLOADS = re.compile(r"urlopen|urlretrieve|requests\.get|httpx\.get")
_RELEASE = re.compile(r"pythonhosted\.org/packages/\S*?/([A-Za-z0-9_.]+?)-\d")
_INSTALLED = re.compile(r"(?:site|dist)-packages/(\w+)/")
_CLONED = re.compile(
    r"(?:https?://|git@|ssh://)[\w.@-]*git(?:hub|lab)[\w.-]*[:/][\w.-]+/([\w.-]+?)(?:\.git)?(?:[@#\s'\"]|$)"
)
_OTHER_VERSION = re.compile(r"(?:==|>=|~=|@)|^(?:-U|--upgrade|--force-reinstall|--target|-t|--no-deps)$")


def released(one: shell.Simple) -> Iterator[str]:
    """Names of the projects whose code a command brings in another version, from where it is published."""
    words, line = list(one.words), one.line
    if one.name == "uv" or (one.name.startswith("python") and words[1:3] == ["-m", "pip"]):
        words = words[2:] if one.name != "uv" else words[1:]
    name = words[0].rsplit("/", 1)[-1] if words else ""
    if re.fullmatch(r"pip[\d.]*", name) and words[1:2] in (["install"], ["download"]):
        other = words[1] == "download" or any(_OTHER_VERSION.search(w) for w in words[2:])
        for w in words[2:] if other else ():
            cloned = _CLONED.search(w)
            plain = re.match(r"[A-Za-z][\w.-]*", w)
            if cloned or (plain and "/" not in w):
                yield cloned[1] if cloned else plain[0]  # type: ignore[index]
    elif (name == "git" and "clone" in words[1:4]) or (name == "gh" and words[1:3] == ["repo", "clone"]):
        where = next((w for w in words[2:] if "/" in w and not w.startswith(("-", "/"))), "")
        if where:
            yield where.rstrip("/").removesuffix(".git").rsplit("/", 1)[-1]
    elif one.name in ("cp", "rsync", "mv", "install") and len(words) > 2:
        # an installed release laid over the project's own file; a copy put aside is a look
        to = words[-1]
        aside = to.startswith(("/tmp", "-")) or "-packages/" in to or re.search(r"\.(?:bak|orig|old)$", to)
        yield from (m[1] for w in words[1:-1] if not aside and (m := _INSTALLED.search(w)))
    elif one.name in FETCHERS and (m := _RELEASE.search(line)):
        yield m[1]


def is_own_project(name: str, task: str, commands: Iterable[str]) -> bool:
    """Is it the package whose files the commands touched, and the task does not ask to install it?"""
    package = re.escape(name.lower().replace("-", "_"))
    if re.search(rf"\b(?:install|clone|download|upgrade)\b[^\n]{{0,80}}\b{package}\b", task.lower().replace("-", "_")):
        return False
    if re.search(
        rf"\b(?:project|package|library|repository|repo)\s+(?:is\s+)?[`'\"]?{package}(?![\w-])",
        task.lower().replace("-", "_"),
    ):
        return True
    inside = re.compile(rf"(?<![\w.-])(?<!packages/){package}/(?:[\w-]+/)*[\w-]+\.py\b")
    return any(inside.search(c.lower().replace("-", "_")) for c in commands)
