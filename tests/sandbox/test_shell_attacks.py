"""Attacks from inside an episode shell. Targets on this machine are open to everybody:
only the shell stands before them.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.sandbox.attacks import RESOURCE_ATTACKS
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import EpisodeShell, ShellLimits
from evotrainer.sandbox.shell_data import ShellFileError

pytestmark = pytest.mark.skipif(find_bubblewrap() is None, reason="bubblewrap is not installed")
SMALL = ShellLimits(memory_mb=96, disk_mb=8, inodes=500, processes=12, output_kb=64, idle_s=5)


@pytest.fixture(scope="module")
def machine() -> Iterator[EpisodeShell]:
    with EpisodeShell.open(limits=SMALL) as shell:
        yield shell


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file that every user of this machine may read and write."""
    folder = Path("/var/tmp") / f"evotrainer-test-{os.getpid()}"
    folder.mkdir(mode=0o777, exist_ok=True)
    folder.chmod(0o777)
    file = folder / "hidden_test.py"
    file.write_text("the secret")
    file.chmod(0o666)
    yield file
    file.unlink()
    folder.rmdir()


def test_the_hosts_files_cannot_be_read_or_written(shell: EpisodeShell, secret: Path) -> None:
    script = (
        f"cat {secret} /etc/shadow /etc/hostname /proc/self/environ; ls /root /home /var /work /proc; echo x > {secret}"
    )
    ran = shell.run(["sh", "-c", script], merge=True)
    assert "the secret" not in ran.text and "root:" not in ran.text and ran.exit != 0
    assert secret.read_text() == "the secret"
    assert shell.run(["cat", "/etc/passwd"]).text.count("\n") == 1  # our own line, not the host's users
    every = shell.run(
        ["sh", "-c", "find / -xdev -type f -not -path '/usr/*' -not -path '/lib*' -not -path '/w/*' | head -20"]
    )
    public = {"/etc/passwd", "/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom"}
    assert set(every.text.split()) <= public


def test_it_is_nobody_without_a_capability(shell: EpisodeShell) -> None:
    code = (
        "import ctypes, os\nprint(os.getuid() != 0, set(os.getgroups()) <= {os.getgid()})\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for n in (101, 155, 161, 165, 166, 246, 248, 250, 272, 308, 310, 311, 321, 323, 425, 438):\n"
        "    print(n, libc.syscall(n, 0, 0, 0, 0, 0) < 0 and ctypes.get_errno() == 1)\n"
    )
    ran = shell.run([shell.python, "-c", code])
    assert ran.text.count("True") == 18 and "False" not in ran.text, ran.text
    assert shell.run(["unshare", "-Ur", "id"]).exit != 0
    assert shell.run(["mount", "-t", "tmpfs", "none", "/w/tmp"]).exit != 0


@pytest.mark.parametrize("loopback", [False, True])
def test_no_network_of_the_host_can_be_reached(loopback: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    name = f"\0evotrainer-{os.getpid()}-{loopback}"
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(name)
    abstract.listen()
    port = listener.getsockname()[1]
    code = f"""
import socket
def reach(family, address):
    try:
        socket.create_connection(address, 1) if family == 2 else socket.socket(family).connect(address)
        print("BREACH")
    except OSError as error:
        print("ok", type(error).__name__)
reach(2, ("127.0.0.1", {port}))
reach(2, ("8.8.8.8", 53))
reach(1, {name!r})
try:
    socket.socket(40, socket.SOCK_STREAM).connect((2, 1024))
    print("BREACH")
except OSError as error:
    print("ok", type(error).__name__)
"""
    try:
        with EpisodeShell.open(limits=ShellLimits(loopback=loopback)) as shell:
            ran = shell.run([shell.python, "-c", code])
            assert ran.text.count("ok") == 4 and "BREACH" not in ran.text, ran
            own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
            assert (shell.run([shell.python, "-c", own]).exit == 0) == loopback
    finally:
        listener.close()
        abstract.close()


def test_a_fork_bomb_ends_at_its_limits_and_the_shell_lives(shell: EpisodeShell) -> None:
    ran = shell.run(["sh", "-c", "b() { b | b & }; b; b; wait"], cpu_s=1.0, wall_s=5)
    assert shell.run(["echo", "alive"]).text == "alive\n", ran
    grow = (
        "import os, signal\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: signal.pause()\n        n += 1\n"
        "except OSError: print(n < 40)\n"
    )
    assert shell.run([shell.python, "-c", grow]).text == "True\n"
    assert shell.run(["echo", "alive"]).text == "alive\n"


def test_a_full_disk_is_the_commands_problem(shell: EpisodeShell) -> None:
    ran = shell.run(["sh", "-c", "head -c 50000000 /dev/zero > big; ls -l big | cut -d' ' -f5"], cpu_s=5)
    assert int(ran.text or 0) <= 8 << 20
    with pytest.raises(ShellFileError, match="No space"):
        shell.write({"repo/more": "x" * 100_000})
    assert (
        shell.run(["sh", "-c", "rm big; i=0; while [ $i -lt 1000 ]; do : > f$i || exit 7; i=$((i+1)); done"]).exit != 0
    )
    assert len(shell.tree()) < 500
    shell.reset({"repo/a": "x"})
    assert shell.read("repo/a") == b"x"


def test_files_full_of_holes_do_not_fill_our_memory(shell: EpisodeShell) -> None:
    assert shell.run(["sh", "-c", "for i in 1 2 3 4 5; do truncate -s 8000000 hole$i; done"]).exit == 0
    with pytest.raises(ShellFileError, match="40000000 bytes in files"):
        shell.tree()
    assert shell.run(["echo", "alive"]).text == "alive\n"


def test_memory_of_all_processes_together_is_limited(shell: EpisodeShell) -> None:
    if shell.tier != "A":
        pytest.skip("no control group here: memory is limited per process only")
    code = (
        "import os, sys\n"
        "for _ in range(8): os.fork() or (bytearray(60 << 20), __import__('time').sleep(1), sys.exit())\n"
    )
    code += "print(sum(os.waitstatus_to_exitcode(os.wait()[1]) == 0 for _ in range(8)))"
    ran = shell.run([shell.python, "-c", code], cpu_s=20)
    assert ran.exit != 0 or int(ran.text) < 8, ran
    assert shell.run(["echo", "alive"]).text == "alive\n"


@pytest.mark.parametrize("name", [p.name for p in RESOURCE_ATTACKS if p.name.startswith("burns time in")])
def test_time_burnt_by_anybody_in_a_command_is_the_commands(name: str) -> None:
    source = next(p.source for p in RESOURCE_ATTACKS if p.name == name)
    with EpisodeShell.open() as roomy:
        if roomy.tier != "A":
            pytest.skip("no control group here to count it")
        ran = roomy.run([roomy.python, "-c", source], cpu_s=0.4)
        assert ran.timed_out and ran.why == "cpu" and 0.4 <= ran.cpu_s < 2.5, ran
        assert roomy.run(["echo", "alive"]).text == "alive\n"


@pytest.mark.parametrize("name", ["takes memory in files without a name", "takes memory and disk at once"])
def test_memory_of_any_kind_is_the_commands(shell: EpisodeShell, name: str) -> None:
    if shell.tier != "A":
        pytest.skip("no control group here to count it")
    source = next(p.source for p in RESOURCE_ATTACKS if p.name == name)
    ran = shell.run([shell.python, "-c", source], cpu_s=20)
    assert ran.exit != 0 and "BREACH" not in ran.text, ran
    assert shell.run(["echo", "alive"]).text == "alive\n", "the shell outlives it"


@pytest.mark.parametrize("locks", [False, True])
def test_locks_are_taken_only_where_they_are_asked_for(locks: bool) -> None:
    use = (
        "import fcntl\nfor f in (open('mine', 'w'), open('/dev/null')): fcntl.flock(f, 2 | 4)\n"
        "fcntl.lockf(open('mine', 'w'), 2)"
    )
    with EpisodeShell.open(limits=ShellLimits(locks=locks)) as other:
        assert (other.run([other.python, "-c", use]).exit == 0) == locks


def test_no_process_survives_its_command(shell: EpisodeShell) -> None:
    daemon = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(0.3)\n"
        "        open('late', 'w')\n    os._exit(0)\n"
    )
    assert shell.run([shell.python, "-c", daemon]).exit == 0
    assert shell.run(["sh", "-c", "nohup sleep 1000 > /dev/null 2>&1 & echo started"]).text == "started\n"
    assert shell.run(["sleep", "0.6"]).exit == 0
    assert [e.path for e in shell.tree()] == []


def test_process_one_cannot_be_killed_or_asked_for_its_descriptors(shell: EpisodeShell) -> None:
    shell.run(["sh", "-c", "kill -9 1; kill -9 -1; kill -INT 1; kill -STOP 1"])
    code = (
        "import os\ndef ok(i):\n    try:\n        return bool(os.fstat(i))\n    except OSError:\n        return False\n"
    )
    fds = shell.run([shell.python, "-c", code + "print([i for i in range(3, 256) if ok(i)])"])
    assert fds.text == "[]\n"
    assert shell.run(["echo", "alive"]).text == "alive\n"


def test_links_do_not_lead_us_out(shell: EpisodeShell, secret: Path) -> None:
    shell.write({"repo/app.py": "x = 1\n"})
    shell.run(["sh", "-c", f"rm app.py; ln -s /etc/passwd app.py; ln -s {secret} hidden; ln -s / root; ln -s ../.. up"])
    for path in (
        "repo/app.py",
        "repo/hidden",
        "repo/root/etc/passwd",
        "repo/up/etc/passwd",
        "../etc/passwd",
        "/etc/passwd",
    ):
        with pytest.raises(ShellFileError, match="leads out of|No such file"):
            shell.read(path)
    shell.write({"repo/app.py": "x = 2\n"})  # replaces the link, does not follow it
    assert shell.read("repo/app.py") == b"x = 2\n"
    shell.write({"repo/hidden": "mine"})
    for path in ("repo/root/usr/x", "repo/up/x", "../x"):
        with pytest.raises(ShellFileError, match="leads out of"):
            shell.write({path: "x"})
    assert secret.read_text() == "the secret"
    assert "passwd" not in {e.path for e in shell.tree()}
    assert {e.kind for e in shell.tree()} == {"f", "l"}


def test_a_pipe_or_device_in_the_place_of_a_file_does_not_hang_us(shell: EpisodeShell) -> None:
    shell.write({"repo/a": "x"})
    assert shell.run(["sh", "-c", "rm a; mkfifo a; ln -s /dev/zero b"]).exit == 0
    for path in ("repo/a", "repo/b"):
        with pytest.raises(ShellFileError):
            shell.read(path)
    assert [(e.path, e.kind) for e in shell.tree()] == [("a", "?"), ("b", "l")]
    shell.write({"repo/a": "y", "repo/b": "z"})
    assert shell.read("repo/a") == b"y" and shell.read("repo/b") == b"z"


def test_folders_without_rights_or_without_end_are_an_answer(shell: EpisodeShell) -> None:
    shell.run(["sh", "-c", "mkdir d; chmod 0 d"])
    with pytest.raises(ShellFileError, match="Permission denied"):
        shell.tree()
    shell.reset()
    shell.run([shell.python, "-c", "import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')"])
    with pytest.raises(ShellFileError, match="folders deep"):
        shell.tree()
    shell.reset({"repo/a": "x"})
    assert [e.path for e in shell.tree()] == ["a"]


def test_strange_names_travel(shell: EpisodeShell) -> None:
    shell.run(["sh", "-c", "printf x > \"$(printf 'new\\nline')\"; printf x > \"$(printf '\\377')\""])
    assert sorted(e.path for e in shell.tree()) == ["new\nline", "\udcff"]


def test_episodes_do_not_see_one_another(shell: EpisodeShell) -> None:
    with EpisodeShell.open({"repo/mine": "of the other"}, SMALL) as other:
        started = threading.Event()
        out: list[str] = []

        def long() -> None:
            started.set()
            out.append(other.run(["sh", "-c", "echo in > /tmp/token; sleep 1; echo done"]).text)

        thread = threading.Thread(target=long)
        thread.start()
        started.wait()
        ran = shell.run(["sh", "-c", "kill -9 -1; find / -name mine -o -name token 2>/dev/null | grep -v '^/usr'"])
        thread.join()
        assert ran.text == "" and out == ["done\n"]
