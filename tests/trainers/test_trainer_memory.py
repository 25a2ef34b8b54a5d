"""Freed memory is kept: asking for the same large block again costs no page faults."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    from evotrainer.trainers.embedded.memory import keep_memory
    assert keep_memory()
for _ in range(50):
    blocks = [torch.zeros(2_000_000) for _ in range(8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_blocks_that_come_back_cost_no_page_faults() -> None:
    assert faults("keep") < faults("give back") - 20_000
