"""Real git repositories for episodes: built once, checked, and packed as files that an episode shell takes.

git runs here only in folders of our own that no policy ever writes to, with no configuration but ours; repositories
that a policy has touched are only ever read inside its shell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evotrainer.envs.swe.gitscrub import CONFIG, assert_scrubbed
from evotrainer.errors import SandboxError, TaskSetError
from evotrainer.sandbox.shell import Entry

BRANCH = "main"
SAFE = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null"),
    *("-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.logAllRefUpdates=false"),
    *("-c", "protocol.allow=never", "-c", "protocol.file.allow=always", "-c", "core.commitGraph=false"),
)
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
}
_TIMEOUT_S = 600


def git(folder: Path, *args: str, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
    """Standard output of git in a folder of ours; SandboxError where git is missing or fails."""
    try:
        done = subprocess.run(
            ["git", *SAFE, *args],
            cwd=folder,
            input=stdin,
            capture_output=True,
            env={**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise SandboxError("instances need git, which is not installed; install it") from None
    except subprocess.TimeoutExpired:
        raise SandboxError(f"git {args[0]} took more than {_TIMEOUT_S} s in {folder}; check the repository") from None
    if done.returncode not in ok:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise SandboxError(f"git {args[0]} failed: {words[-1] if words else done.returncode}; check the repository")
    return done.stdout


@dataclass(frozen=True, slots=True)
class BuiltRepository:
    """A repository ready for shells: every path below the checkout, `.git` included."""

    files: Mapping[str, Entry]
    base: str
    """Commit of the base: what the working tree holds."""
    head: str
    """Newest commit that the history shows."""
    tree: Mapping[str, Entry]
    """The working tree at the base, as git has it: files, links, empty folders in the place of submodules."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only we can enter; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="evotrainer-git-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def init(folder: Path) -> Path:
    """A bare repository without hooks, templates or remotes; returns its folder."""
    gitdir = folder / ".git"
    gitdir.mkdir(parents=True)
    for name in ("objects/pack", "objects/info", "refs/heads", "refs/tags"):
        (gitdir / name).mkdir(parents=True)
    (gitdir / "HEAD").write_text(f"ref: refs/heads/{BRANCH}\n")
    (gitdir / "config").write_text(CONFIG)
    return gitdir


def from_mirror(mirror: Path, commit: str, scrubbed: bool, depth: int = 0) -> BuiltRepository:
    """A checkout of `commit` from a mirror (which is only read).

    scrubbed: a fresh repository with the history up to the commit (`depth` newest commits of it; 0: all), no remotes,
    no tags. Otherwise every branch and tag of the mirror is there as well, newer ones included.
    """
    with private_folder() as folder:
        gitdir = init(folder)
        serve = "git -c uploadpack.allowAnySHA1InWant=true -c safe.directory=* upload-pack"
        url = mirror.resolve().as_uri()
        wanted = [f"{commit}:refs/heads/{BRANCH}"]
        if not scrubbed:
            wanted += ["refs/heads/*:refs/remotes/origin/*", "refs/tags/*:refs/tags/*"]
        elif depth:
            wanted.insert(0, f"--depth={depth}")
        # No tags of their own accord, no FETCH_HEAD; `--` cannot stand before options.
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--update-head-ok", f"--upload-pack={serve}"]
        options += [w for w in wanted if w.startswith("--")]
        git(gitdir, "fetch", *options, url, *[w for w in wanted if not w.startswith("--")])
        return finish(gitdir, git(gitdir, "rev-parse", f"{BRANCH}^{{commit}}").decode().strip(), scrubbed)


def finish(gitdir: Path, base: str, scrubbed: bool) -> BuiltRepository:
    """Index, cleaning, the check, and everything as files."""
    git(gitdir, "read-tree", base)
    for extra in ("logs", "hooks", "branches", "description", "info"):
        path = gitdir / extra
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    if scrubbed:
        assert_scrubbed(gitdir, base, run=git)
    head = git(gitdir, "rev-parse", "HEAD").decode().strip()
    tree = read_tree(gitdir, base)
    files = {f".git/{path}": entry for path, entry in read_folder(gitdir).items()}
    return BuiltRepository({**files, **tree}, base, head, tree)


def read_folder(folder: Path) -> dict[str, Entry]:
    """Every file of a folder of ours, and empty folders."""
    found: dict[str, Entry] = {}
    for here, folders, names in os.walk(folder):
        below = os.path.relpath(here, folder)
        for name in names:
            path = os.path.normpath(f"{below}/{name}")
            found[path] = Entry(path, "f", 0o644, (Path(here) / name).read_bytes())
        if not folders and not names and below != ".":
            found[below] = Entry(below, "d", 0o755, b"")
    return found


def read_tree(gitdir: Path, commit: str) -> dict[str, Entry]:
    """The files of a commit as git stores them: no filter, no conversion of line ends runs."""
    rows = git(gitdir, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]
    heads = [row.partition(b"\t") for row in rows]
    parsed = [(h.split()[0], h.split()[2], os.fsdecode(path)) for h, _, path in heads]
    blobs = read_blobs(gitdir, [oid.decode() for mode, oid, _ in parsed if mode != b"160000"])
    found: dict[str, Entry] = {}
    for mode, oid, path in parsed:
        if mode == b"160000":
            found[path] = Entry(path, "d", 0o755, b"")
        elif mode == b"120000":
            found[path] = Entry(path, "l", 0o777, blobs[oid.decode()])
        else:
            found[path] = Entry(path, "f", 0o755 if mode == b"100755" else 0o644, blobs[oid.decode()])
    return found


def read_blobs(gitdir: Path, oids: Sequence[str]) -> dict[str, bytes]:
    """Contents of objects by id."""
    if not oids:
        return {}
    return parse_batch(git(gitdir, "cat-file", "--batch", stdin="".join(f"{o}\n" for o in oids).encode()))


def parse_batch(out: bytes) -> dict[str, bytes]:
    """What `git cat-file --batch` printed: contents by id; objects that are missing are left out."""
    found: dict[str, bytes] = {}
    at = 0
    while (end := out.find(b"\n", at)) >= 0:
        words = out[at:end].split()
        if len(words) != 3:
            at = end + 1
            continue
        size = int(words[2])
        found[words[0].decode()] = out[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
    return found


BUILT = 8


class BuildCache:
    """Built repositories by key, the latest BUILT of them."""

    def __init__(self) -> None:
        self._found: dict[str, BuiltRepository] = {}

    def get(self, key: str, make: Callable[[], BuiltRepository]) -> BuiltRepository:
        """The one of this key, made where there is none."""
        found = self._found.pop(key, None) or make()
        self._found[key] = found
        while len(self._found) > BUILT:
            del self._found[next(iter(self._found))]
        return found


def find_mirror(folder: Path, repo: str) -> Path:
    """Where the mirror of `owner/name` lies below `folder`: owner__name or owner/name, bare
    (also `.git`) or a checkout."""
    for name in (repo.replace("/", "__"), repo):
        for path in (folder / name, folder / f"{name}.git"):
            if (path / "objects").is_dir() and (path / "HEAD").is_file():
                return path
            if (path / ".git").exists():
                return path / ".git" if (path / ".git").is_dir() else path
    raise TaskSetError(
        f"no mirror of {repo} in {folder}; clone it: git clone --mirror URL {folder}/{repo.replace('/', '__')}"
    )
