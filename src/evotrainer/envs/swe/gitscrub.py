"""The proof that a repository shows nothing newer than its base: what may be in its folder is listed,
all else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from evotrainer.errors import TaskSetError
from evotrainer.records.text import quoted

CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
"""The whole configuration of every repository that we build."""
_ALLOWED = re.compile(
    r"HEAD|config|index|packed-refs|shallow"
    r"|refs/heads/[\w.-]+"
    r"|objects/[0-9a-f]{2}/[0-9a-f]{38}"
    r"|objects/pack/pack-[0-9a-f]{40}\.(?:pack|idx|rev)"
)
_HEX = re.compile(r"[0-9a-f]{40}")


def assert_scrubbed(gitdir: Path, base: str, run: Callable[..., bytes]) -> None:
    """TaskSetError unless nothing but the base and its ancestors can be found in the repository.

    Looked at: every file of the folder against a list (so no reflog, ORIG_HEAD, FETCH_HEAD, stash, notes, alternates,
    worktrees, bundles, hooks, unfinished packs), the configuration, every reference, every object in every store,
    dangling ones included, and the index. `run`: `gitrepo.git`.
    """
    files = {p.relative_to(gitdir).as_posix(): p for p in gitdir.rglob("*") if not p.is_dir() or p.is_symlink()}
    for name, path in sorted(files.items()):
        if path.is_symlink() or not _ALLOWED.fullmatch(name):
            _refuse(f"{name} is there")
    if (gitdir / "config").read_text() != CONFIG:
        _refuse("config is not ours (a remote, an alternate place for objects, a filter)")
    ancestors = set(run(gitdir, "rev-list", base).decode().split())
    _check_references(gitdir, files, base, ancestors)
    lines = run(gitdir, "rev-list", "--objects", "--no-object-names", base).decode().split()
    reachable = {w for w in lines if _HEX.fullmatch(w)}
    stored = run(gitdir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)", "--unordered")
    for line in stored.decode().splitlines():
        name, kind = line.split()
        if name not in reachable:
            _refuse(f"{kind} {name} is not part of the base or its history")
    if (gitdir / "index").exists():
        for line in run(gitdir, "diff-index", "--cached", "--name-only", base).decode().splitlines():
            _refuse(f"the index has {line} other than the base")


def _check_references(gitdir: Path, files: dict[str, Path], base: str, ancestors: set[str]) -> None:
    head = (gitdir / "HEAD").read_text().strip()
    if not re.fullmatch(r"ref: refs/heads/[\w.-]+", head):
        _refuse(f"HEAD is {quoted(head)}, no branch")
    found = {name: path.read_text().strip() for name, path in files.items() if name.startswith("refs/")}
    if "packed-refs" in files:
        for line in files["packed-refs"].read_text().splitlines():
            if line.startswith("#"):
                continue
            oid, _, name = line.lstrip("^").partition(" ")
            found[name or f"peeled {oid}"] = oid
            if name and not name.startswith("refs/heads/"):
                _refuse(f"packed-refs names {name}")
    for name, oid in found.items():
        if oid not in ancestors:
            _refuse(f"{name} points to {oid[:60]}")
    if found.get(head.removeprefix("ref: ")) != base:
        _refuse("HEAD is not at the base")
    if "shallow" in files:
        for oid in files["shallow"].read_text().split():
            if oid not in ancestors:
                _refuse(f"shallow names {oid[:60]}")


def _refuse(what: str) -> None:
    raise TaskSetError(f"a scrubbed repository shows more than its base: {what}; build it again, or use history = full")
