"""`records.processes`: the memory that is left for more."""

from __future__ import annotations

from pathlib import Path

from evotrainer.records.processes import memory_free


def test_the_group_of_a_container_limits_memory(tmp_path: Path) -> None:
    assert memory_free(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  9 kB\nMemAvailable:    8 kB\n")
    assert memory_free(tmp_path) == 8192
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert memory_free(tmp_path) == 8192
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("4096\n")
    (tmp_path / "sys/fs/cgroup/memory.stat").write_text("anon 96\nfile 4000\n")
    assert memory_free(tmp_path) == 4000
