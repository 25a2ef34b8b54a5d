"""`envs.swe.gitrepo` and `envs.swe.gitscrub`: repositories are the same everywhere,
and hold nothing newer than the base when scrubbed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evotrainer.envs.swe import gitrepo
from evotrainer.envs.swe.gitrepo import from_mirror, git, private_folder
from evotrainer.envs.swe.gitscrub import assert_scrubbed
from evotrainer.envs.swe.world import Commit
from evotrainer.errors import SandboxError, TaskSetError
from tests.envs.swe.mirrors import build, import_stream

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

COMMITS = (
    Commit("first", {"a.py": None, "d/b.py": None}, {"a.py": "x = 1\n", "d/b.py": "y = 1\n"}),
    Commit("remove b, odd name", {"d/b.py": "y = 1\n", 'o "ä".txt': None}, {"d/b.py": None, 'o "ä".txt': "ä\n"}),
    Commit("the fix", {"a.py": "x = 1\n"}, {"a.py": "x = 2\n"}),
)


def unpack(built: gitrepo.BuiltRepository, folder: Path) -> Path:
    """A built repository as files of ours; returns its .git."""
    for path, entry in built.files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "d":
            place.mkdir(exist_ok=True)
        elif entry.kind == "l":
            place.symlink_to(os.fsdecode(entry.data))
        else:
            place.write_bytes(entry.data)
    return folder / ".git"


@pytest.fixture
def gitdir(tmp_path: Path) -> Path:
    return unpack(build(COMMITS[:2], 1, scrubbed=True), tmp_path / "repo")


def newer(gitdir: Path) -> str:
    """A commit on top of the base, loose in the store, that no reference names."""
    blob = git(gitdir, "hash-object", "-w", "--stdin", stdin=b"x = 2\n").decode().strip()
    tree = git(gitdir, "mktree", stdin=f"100644 blob {blob}\ta.py\n".encode()).decode().strip()
    who = ["-c", "user.name=dev", "-c", "user.email=dev@example.com"]
    return git(gitdir, *who, "commit-tree", tree, "-p", "HEAD", "-m", "the fix").decode().strip()


def test_the_same_commits_have_the_same_hashes_and_read_back() -> None:
    one, two = build(COMMITS, 1, scrubbed=False), build(COMMITS, 1, scrubbed=False)
    assert one.files == two.files and one.base != one.head
    assert build(COMMITS[:2], 1, scrubbed=True).base == one.base
    assert {p: e.data for p, e in one.tree.items()} == {"a.py": b"x = 1\n", 'o "ä".txt': "ä\n".encode()}


def test_what_is_built_passes_its_own_check(gitdir: Path) -> None:
    assert_scrubbed(gitdir, git(gitdir, "rev-parse", "HEAD").decode().strip(), run=git)


def test_a_fix_on_the_branch_is_refused() -> None:
    with pytest.raises(TaskSetError, match="is not at the base|points to"):
        build(COMMITS, 1, scrubbed=True)


def _write(path: str, text: str = "{newer}\n") -> Callable[[Path, str], None]:
    def plant(gitdir: Path, commit: str) -> None:
        place = gitdir / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.replace("{newer}", commit))

    return plant


def _pack(gitdir: Path, commit: str) -> None:
    git(gitdir, "update-ref", "refs/heads/x", commit)
    git(gitdir, "repack", "-adq")
    (gitdir / "refs/heads/x").unlink()
    for extra in ("objects/info", "info"):
        shutil.rmtree(gitdir / extra)


def _stage(gitdir: Path, commit: str) -> None:
    git(gitdir, "read-tree", commit)
    _only_base_objects(gitdir)


def _only_base_objects(gitdir: Path) -> None:
    for folder in (gitdir / "objects").glob("??"):
        shutil.rmtree(folder)


def _alternate(gitdir: Path, commit: str) -> None:
    other = gitdir.parent.parent / "other"
    shutil.copytree(gitdir / "objects", other)
    _only_base_objects(gitdir)
    (gitdir / "objects/info").mkdir(exist_ok=True)
    (gitdir / "objects/info/alternates").write_text(f"{other}\n")


LEFTOVERS: dict[str, tuple[Callable[[Path, str], None], str]] = {
    "branch": (_write("refs/heads/next"), "refs/heads/next points to"),
    "tag": (_write("refs/tags/v2"), r"refs/tags/v2 is there"),
    "packed tag": (_write("packed-refs", "{newer} refs/tags/v2\n"), "packed-refs names refs/tags/v2"),
    "packed branch": (_write("packed-refs", "{newer} refs/heads/next\n"), "refs/heads/next points to"),
    "remote branch": (_write("refs/remotes/origin/main"), "refs/remotes/origin/main is there"),
    "reflog": (_write("logs/HEAD", "0 {newer} dev <d> 1 +0000\tcommit\n"), "logs/HEAD is there"),
    "stash": (_write("refs/stash"), "refs/stash is there"),
    "notes": (_write("refs/notes/commits"), "refs/notes/commits is there"),
    "replacement": (_write("refs/replace/" + "0" * 40), "refs/replace"),
    "ORIG_HEAD": (_write("ORIG_HEAD"), "ORIG_HEAD is there"),
    "FETCH_HEAD": (_write("FETCH_HEAD"), "FETCH_HEAD is there"),
    "MERGE_HEAD": (_write("MERGE_HEAD"), "MERGE_HEAD is there"),
    "detached HEAD": (_write("HEAD"), "HEAD is"),
    "dangling objects": (lambda gitdir, commit: None, "is not part of the base"),
    "dangling objects in a pack": (_pack, "is not part of the base"),
    "alternates": (_alternate, "alternates is there"),
    "alternate over http": (_write("objects/info/http-alternates"), "http-alternates is there"),
    "index": (_stage, "."),
    "remote": (_write("config", gitrepo.CONFIG + '[remote "origin"]\n\turl = /somewhere\n'), "config is not ours"),
    "worktree": (_write("worktrees/w/HEAD"), "worktrees/w/HEAD is there"),
    "bundle": (_write("fix.bundle"), "fix.bundle is there"),
    "hook": (_write("hooks/post-checkout", "#!/bin/sh\n"), "hooks/post-checkout is there"),
    "unfinished pack": (_write("objects/pack/tmp_pack_1"), "tmp_pack_1 is there"),
    "patch in the folder": (_write("info/fix.patch"), "info/fix.patch is there"),
    "link": (lambda gitdir, commit: (gitdir / "refs/heads/x").symlink_to(gitdir / "HEAD"), "refs/heads/x is there"),
}


@pytest.mark.parametrize("name", LEFTOVERS)
def test_a_leftover_is_found(name: str, gitdir: Path) -> None:
    base = git(gitdir, "rev-parse", "HEAD").decode().strip()
    plant, message = LEFTOVERS[name]
    if name in ("dangling objects", "dangling objects in a pack", "alternates", "index", "branch", "packed branch"):
        commit = newer(gitdir)
    else:
        commit = "5" * 40  # the name alone is a leftover
    plant(gitdir, commit)
    with pytest.raises(TaskSetError, match=message):
        assert_scrubbed(gitdir, base, run=git)


def mirror_with_fix(folder: Path) -> tuple[Path, str, str]:
    """A bare mirror with the fix on main, tagged, and a stray branch; returns it with base and fix."""
    mirror = folder / "mirrors" / "dev__app"
    gitdir = gitrepo.init(mirror)
    git(gitdir, "fast-import", "--quiet", "--done", stdin=import_stream(COMMITS))
    base, fix = (git(gitdir, "rev-parse", r).decode().strip() for r in ("main~1", "main"))
    git(gitdir, "update-ref", "refs/tags/v2", fix)
    return mirror, base, fix


def test_a_checkout_from_a_mirror_is_scrubbed_and_the_mirror_untouched(tmp_path: Path) -> None:
    mirror, base, fix = mirror_with_fix(tmp_path)
    before = {p: p.read_bytes() for p in mirror.rglob("*") if p.is_file()}
    built = from_mirror(gitrepo.find_mirror(tmp_path / "mirrors", "dev/app"), base, scrubbed=True)
    gitdir = unpack(built, tmp_path / "out")
    assert git(gitdir, "log", "--format=%s").decode().split("\n")[0] == COMMITS[1].message
    with pytest.raises(SandboxError):
        git(gitdir, "cat-file", "-e", fix)
    assert before == {p: p.read_bytes() for p in mirror.rglob("*") if p.is_file()}
    short = from_mirror(mirror / ".git", base, scrubbed=True, depth=1)
    assert git(unpack(short, tmp_path / "short"), "rev-list", "--count", "HEAD") == b"1\n"
    assert short.tree == built.tree
    full = from_mirror(mirror / ".git", base, scrubbed=False)
    assert git(unpack(full, tmp_path / "full"), "show", "v2:a.py") == b"x = 2\n"


def test_configuration_hooks_and_filters_of_a_mirror_do_not_run(tmp_path: Path) -> None:
    mirror, base, _ = mirror_with_fix(tmp_path)
    flag = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {flag}\n")
    script.chmod(0o755)
    hooks = mirror / ".git" / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-receive", "post-upload-pack", "reference-transaction"):
        shutil.copy(script, hooks / name)
    with (mirror / ".git" / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = {script}\n[filter "x"]\n\tsmudge = {script}\n[uploadpack]\n')
        config.write(f"\tpackObjectsHook = {script}\n[alias]\n\tupload-pack = !{script}\n")
    from_mirror(mirror / ".git", base, scrubbed=True)
    assert not flag.exists()


def test_our_git_reads_no_configuration_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = somebody\n[core]\n\thooksPath = /tmp\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    with private_folder() as folder:
        said = git(gitrepo.init(folder), "config", "--list").decode()
        assert "somebody" not in said and oct(folder.stat().st_mode & 0o777) == "0o700"
    assert not folder.exists()


def test_a_missing_mirror_and_a_failing_git_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TaskSetError, match="git clone --mirror"):
        gitrepo.find_mirror(tmp_path, "dev/app")
    mirror, _, _ = mirror_with_fix(tmp_path)
    with pytest.raises(SandboxError, match="git fetch failed"):
        from_mirror(mirror / ".git", "1" * 40, scrubbed=True)
