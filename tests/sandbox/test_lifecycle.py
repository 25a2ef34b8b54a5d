"""It restarts by itself, dies with its parent, degrades with a reason, and says what it proved."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox import Program, Sandbox
from evotrainer.sandbox.attack_targets import attack_targets
from evotrainer.sandbox.cgroups import SlotGroup
from evotrainer.sandbox.interpreter import copy_runtime, readable_by
from evotrainer.sandbox.jobs import RunJob
from evotrainer.sandbox.launch import Mechanism
from evotrainer.sandbox.pool import Lane, run_jobs
from evotrainer.sandbox.slot import start_slot

PRINT = Program("print(input())", stdins=("a",))


def zygotes(box: Sandbox) -> list[int]:
    """Process ids of the running zygotes."""
    return [slot.zygote.pid for lane in box._lanes for slot in lane.slots if slot.zygote]


def gone(pid: int) -> bool:
    """No such process, or only its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def eventually(condition: object, *arguments: object) -> bool:
    """Poll up to 20 s: the kernel kills in its own time."""
    for _ in range(2000):
        if condition(*arguments):  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def test_it_never_runs_as_root(box: Sandbox) -> None:
    assert box.report.uid != 0
    for pid in zygotes(box):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        assert next(line for line in lines if line.startswith("Uid")).split()[1] != "0"


def test_the_report_shows_every_probe(box: Sandbox) -> None:
    text = str(box.report)
    assert f"sandbox tier {box.tier}" in text
    assert all(probe.name in text for probe in box.report.probes)
    needed = [probe for probe in box.report.probes if probe.tier != "A"]
    assert all(probe.held for probe in needed), text


def test_probes_without_their_victim_are_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="cannot start `sleep`.*put coreutils on PATH"), attack_targets(os.getuid()):
        pass


def test_weaker_tiers_are_found_out_by_their_own_probes(unprotected: Sandbox) -> None:
    broken = {probe.name for probe in unprotected.report.probes if not probe.held}
    assert unprotected.tier == "D"
    assert broken >= {"network", "files_write", "files_read", "signals", "execute", "seccomp", "proc", "persistence"}


@pytest.mark.parametrize("tier", ["B", "C"])
def test_a_forced_tier_is_not_exceeded(tier: str) -> None:
    try:
        forced = Sandbox.open(tier=tier)  # type: ignore[arg-type]
    except SandboxError as error:
        pytest.skip(str(error))
    with forced:
        assert forced.tier >= tier
        assert forced.run([PRINT])[0].cases[0].stdout == "a\n"


def test_tier_e_is_refused_unless_accepted() -> None:
    with pytest.raises(SandboxError, match="tier E"):
        Sandbox.open(tier="E")
    with Sandbox.open(tier="E", accept_tier_e=True) as box:
        assert box.tier == "E"


def test_without_bubblewrap_it_degrades_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOTRAINER_BWRAP", "no-such-bwrap")
    with Sandbox.open() as box:
        assert box.tier in ("C", "D")
        assert any("not installed" in note for note in box.report.notes)
    with pytest.raises(SandboxError, match="install"):
        Sandbox.open(tier="A")


def test_forbidden_namespaces_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    refusing.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    monkeypatch.setenv("EVOTRAINER_BWRAP", str(refusing))
    with pytest.raises(SandboxError, match="user namespaces"):
        Sandbox.open(tier="A")


def test_a_killed_zygote_is_replaced(box: Sandbox) -> None:
    for _ in range(2):
        for pid in (pid for pid in zygotes(box) if not gone(pid)):
            os.kill(pid, signal.SIGKILL)
            assert eventually(gone, pid)
        results = box.run([PRINT] * 4)
        assert [r.cases[0].stdout for r in results] == ["a\n"] * 4


def test_a_zygote_killed_under_a_program_is_a_fault_not_a_failure(box: Sandbox) -> None:
    """All its cases are tried once more on a new zygote; when that dies too, it is our fault, not the program's."""
    script = """
import os, signal, sys, threading, time
from evotrainer.sandbox import Limits, Program, Sandbox
with Sandbox.open() as box:
    def assassin():
        killed = [None]
        while len(killed) <= int(sys.argv[1]):
            slots = box._lanes[0].slots if box._lanes else []
            pid = getattr(slots[0].zygote, "pid", None) if slots else None
            if pid in killed:
                time.sleep(0.01)
                continue
            time.sleep(1.0)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            at.append(time.monotonic())
    at = []
    threading.Thread(target=assassin, daemon=True).start()
    until = time.monotonic() + (1.6 if sys.argv[1] == "1" else 120)
    source = "import time\\nlast = input()\\nprint(time.monotonic())\\nwhile last and time.monotonic() < {}: pass"
    program = Program(source.format(until), stdins=("\\n", "last\\n"), limits=Limits(idle_s=60))
    first, last = box.run([program])[0].cases
    print(last.status, first.status == last.status, first.status != "ok" or float(first.stdout) > at[0])
    print(box.run([Program("print(1)", stdins=("",))])[0].cases[0].status)
"""
    for kills, expected in (("1", "ok"), ("2", "sandbox")):
        done = subprocess.run([sys.executable, "-c", script, kills], capture_output=True, text=True, check=False)
        assert done.stdout.split() == [expected, "True", "True", "ok"], done


def test_an_interrupted_batch_leaves_a_working_sandbox(box: Sandbox) -> None:
    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            box.run([Program("import time; time.sleep(4)", stdins=("",))] * 3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [r.cases[0].stdout for r in box.run([PRINT] * 3)] == ["a\n"] * 3
    assert box.strays() == 0


def test_killing_the_parent_leaves_no_orphan() -> None:
    script = """
import sys, threading, time
from evotrainer.sandbox import Program, Sandbox
box = Sandbox.open(workers=2)
box.run([Program("print(1)", stdins=("",))] * 4)
pids = [slot.zygote for lane in box._lanes for slot in lane.slots]
print(*[z.pid for z in pids], *[z.process.pid for z in pids], flush=True)
print(pids[0].token, flush=True)
box.run([Program("import os, time\\nos.fork()\\ntime.sleep(60)", stdins=("",))] * 2)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    token = parent.stdout.readline().strip()
    assert pids
    time.sleep(1.0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert all(eventually(gone, pid) for pid in pids)

    def nobody_left() -> bool:
        found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        return token not in found

    assert eventually(nobody_left)


def test_closing_leaves_nothing_behind(box: Sandbox) -> None:
    other = Sandbox.open(tier="B" if box.tier == "B" else "A")
    pids, groups = zygotes(other), [slot.group for lane in other._lanes for slot in lane.slots]
    other.close()
    assert all(eventually(gone, pid) for pid in pids)
    assert not any(folder.exists() for group in groups if group for folder in group.folders)


def test_a_group_of_version_2_gets_its_files(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / "cpu.stat").write_text(f"usage_usec {time.process_time_ns() // 1000 + 2_500_000}\nuser_usec 1\n")
    group = SlotGroup(tmp_path, tmp_path, unified=True)
    group.set_limits(1 << 20, 7)
    group.fit_memory(1 << 20)
    group.add(42)
    assert (tmp_path / "memory.max").read_text() == str(1 << 20)
    assert (tmp_path / "pids.max").read_text() == "7"
    assert (tmp_path / "cgroup.procs").read_text() == "42"
    assert group.kills() == 2
    assert 0 < (group.cpu_s(besides=os.getpid()) or 0) <= 2.5


def test_a_private_copy_of_the_running_interpreter_works(box: Sandbox) -> None:
    mechanism = Mechanism(namespaces=True, seccomp=True, cgroup=False)
    source = "import sys, json, decimal, random; print(*sys.version_info[:3], sys.prefix)"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copied = copy_runtime(Path(folder))
        lane = Lane(lambda: start_slot(mechanism, copied))
        job = RunJob(Program(source, stdins=("",)))
        try:
            run_jobs([lane], [job])
        finally:
            lane.abandon()
    expected = " ".join(str(part) for part in sys.version_info[:3])
    assert job.result().cases[0].stdout == f"{expected} /opt/python\n"


def test_an_interpreter_below_a_closed_home_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "home" / "python"
    file.parent.mkdir()
    file.write_text("x")
    file.chmod(0o755)
    file.parent.chmod(0o700)
    assert not readable_by(file, 65_534 if os.geteuid() != 65_534 else 65_533)
    assert readable_by(Path(shutil.which("sh") or "/bin/sh").resolve(), 65_534)
