"""Episode shells: commands, files, limits, ends."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import Entry, EpisodeShell, ShellLimits, Template
from evotrainer.sandbox.shell_data import ShellFileError

pytestmark = pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def machine() -> Iterator[EpisodeShell]:
    with EpisodeShell.open() as shell:
        yield shell


def test_a_command_gives_back_its_code_its_output_and_its_errors_apart(shell: EpisodeShell) -> None:
    ran = shell.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin="in\n")
    assert (ran.exit, ran.stdout, ran.stderr, ran.timed_out, ran.truncated) == (3, b"in\n", b"err\n", False, False)
    assert ran.cpu_s > 0
    assert shell.run(["sh", "-c", "echo a; echo b >&2"], merge=True).stdout == b"a\nb\n"


def test_files_last_as_long_as_the_episode_and_no_longer(shell: EpisodeShell) -> None:
    shell.write({"repo/a/b.txt": "one\n"})
    assert shell.run(["sh", "-c", "cat a/b.txt; echo two >> a/b.txt"]).text == "one\n"
    assert shell.read("repo/a/b.txt") == b"one\ntwo\n"
    shell.reset({"repo/c.txt": "new"})
    assert [e.path for e in shell.tree()] == ["c.txt"]
    assert shell.run(["ls", "/w/repo", "/w/tmp", "/w/home", "/dev/shm"]).text.count("txt") == 1


def test_modes_links_and_empty_folders_go_in_and_come_out(shell: EpisodeShell) -> None:
    with Template(
        {
            "repo/run.sh": Entry("", "f", 0o755, b"#!/bin/sh\necho ran\n"),
            "repo/link": Entry("", "l", 0o777, b"run.sh"),
            "repo/empty": Entry("", "d", 0o755, b""),
            "repo/bytes": b"\xff\x00",
        }
    ) as template:
        for _ in range(2):
            shell.reset(template)
            assert shell.run(["./link"]).text == "ran\n"
            found = {e.path: e for e in shell.tree()}
            assert found["run.sh"].mode == 0o755
            assert (found["link"].kind, found["link"].data) == ("l", b"run.sh")
            assert found["empty"].kind == "d"
            assert found["bytes"].data == b"\xff\x00"


def test_many_files_go_in_at_once(shell: EpisodeShell) -> None:
    shell.write({f"repo/folder{i % 7}/file-with-a-rather-long-name-{i}": str(i) for i in range(3000)})
    assert len(shell.tree(contents=False)) == 3000
    assert shell.read("repo/folder6/file-with-a-rather-long-name-2995") == b"2995"


def test_signals_and_missing_programs_have_the_codes_of_a_shell(shell: EpisodeShell) -> None:
    assert shell.run(["no-such-program"]).exit == 127
    shell.write({"repo/data": "x"})
    assert shell.run(["./data"]).exit == 126
    assert shell.run([shell.python, "-c", "import os; os.kill(os.getpid(), 11)"]).exit == 128 + 11


def test_impossible_arguments_are_an_answer_not_a_fault(shell: EpisodeShell) -> None:
    for argv in ([], ["a\0b"], ["echo", "x" * 200_000], ["echo", "ä" * 40_000]):
        assert shell.run(argv).exit == 126
    assert shell.run(["true"]).exit == 0


def test_texts_that_are_no_unicode_are_no_fault(shell: EpisodeShell) -> None:
    shell.write({"repo/odd": "a\ud800\udcff\n"})
    assert shell.read("repo/odd").startswith(b"a") and shell.run(["cat"], stdin="\ud800").exit == 0
    assert shell.run(["echo", "\ud800"]).exit == 126
    with pytest.raises(ShellFileError):
        shell.read("repo/\ud800")


def test_cpu_time_of_all_processes_decides_a_timeout(shell: EpisodeShell) -> None:
    ran = shell.run(["sh", "-c", "(while :; do :; done) & (while :; do :; done) & wait"], cpu_s=0.4)
    assert ran.timed_out and ran.why == "cpu" and 0.4 <= ran.cpu_s < 5
    assert not shell.run([shell.python, "-c", "import time; time.sleep(0.3)"], cpu_s=0.2).timed_out


def test_what_sleeps_is_ended_by_the_clock() -> None:
    with EpisodeShell.open(limits=ShellLimits(idle_s=0.3)) as shell:
        ran = shell.run(["sleep", "60"])
        assert ran.timed_out and ran.why == "idle"
    with EpisodeShell.open() as shell:
        ran = shell.run(["sleep", "60"], wall_s=0.3)
        assert ran.timed_out and ran.why == "wall"


def test_output_without_end_is_cut_and_the_command_goes_on() -> None:
    with EpisodeShell.open(limits=ShellLimits(output_kb=4)) as shell:
        ran = shell.run(["sh", "-c", "yes | head -c 1000000; exit 5"])
        assert ran.truncated and len(ran.stdout) == 4096 and ran.exit == 5


def test_git_and_python_work_inside(shell: EpisodeShell) -> None:
    shell.write({"repo/a.py": "print(6 * 7)\n"})
    env = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    script = "git init -q . && git add . && git commit -qm first && git log --format=%s && " + shell.python + " a.py"
    ran = shell.run(["sh", "-c", script], env=env)
    assert (ran.exit, ran.text, ran.stderr) == (0, "first\n42\n", b"")
    copied = shell.run(
        [shell.python, "-c", "import shutil, tempfile; print(shutil.copy2('a.py', tempfile.mkdtemp())[:6])"]
    )
    assert copied.text == "/w/tmp\n", copied.stderr


def test_a_machine_that_is_killed_is_a_fault_and_never_a_result() -> None:
    shell = EpisodeShell.open()
    assert shell._channel.started is not None
    shell._channel.started.process.kill()
    with pytest.raises(SandboxError, match="episode is lost"):
        shell.run(["true"])
    assert shell.closed
    with pytest.raises(SandboxError, match="closed"):
        shell.read("repo/a")


def test_a_message_that_cannot_be_sent_leaves_no_descriptor_open(shell: EpisodeShell) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(ShellFileError, match="too long"):
            shell.run(["true"], env={"X": "x" * 200_000})
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert shell.run(["true"]).exit == 0


def test_closing_ends_everything() -> None:
    shell = EpisodeShell.open()
    assert shell._channel.started is not None
    uid, group = shell._channel.started.uid, shell._channel.started.group
    shell.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
    shell.close()
    if os.geteuid() == 0:
        assert _processes_of(uid) == 0
    if group:
        assert not group.memory.exists()


def _processes_of(uid: int) -> int:
    for _ in range(1500):  # on a busy machine what was killed takes its time to end
        found = 0
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and folder.stat().st_uid == uid:
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                    found += state not in "ZX"
            except OSError:
                continue
        if not found:
            return 0
        time.sleep(0.02)
    return found


def test_a_shell_dies_with_its_parent() -> None:
    code = (
        "import os, time\nfrom evotrainer.sandbox.shell import EpisodeShell\n"
        "s = EpisodeShell.open()\nprint(s._channel.started.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    import sys

    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.02)
    pytest.fail("bubblewrap outlived its parent")


def test_without_bubblewrap_the_message_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOTRAINER_BWRAP", "/no/such/bwrap")
    with pytest.raises(SandboxError, match=r"install the package 'bubblewrap', or use world = \"memory\""):
        EpisodeShell.open()


def test_a_folder_is_shown_below_opt_only(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="below /opt only"):
        EpisodeShell.open(binds=[("/usr/lib", "/usr/bin")])
    with EpisodeShell.open(binds=[("/usr/lib/os-release", "/opt/release")]) as shell:
        assert shell.run(["sh", "-c", "cat /opt/release; echo x > /opt/release"]).exit != 0


def test_reading_is_limited_and_says_what_is_wrong(shell: EpisodeShell) -> None:
    shell.write({"repo/long": "x" * 5000})
    assert len(shell.read("repo/long", limit=100)) == 100
    with pytest.raises(ShellFileError, match="No such file"):
        shell.read("repo/none")
    with pytest.raises(ShellFileError, match="not a regular file"):
        shell.read("repo")
    with pytest.raises(ShellFileError, match="is a folder"):
        shell.write({"repo": "x"})
