"""`trainers.embedded.memory`: freed memory is kept, asking for the same large block again costs no page faults."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource, sys, torch
torch.set_num_threads(1)
# Where the system hands out huge pages by itself, 8 MB are four faults instead of two thousand.
assert ctypes.CDLL(None, use_errno=True).prctl(41, 1, 0, 0, 0) == 0, "PR_SET_THP_DISABLE"


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


# What a process begins with; imports may have raised it, glibc adapts it to the blocks that it sees.
for threshold in (-1, -3):
    assert ctypes.CDLL(None).mallopt(threshold, 128 << 10)
if sys.argv[1] == "keep":
    from evotrainer.trainers.embedded.memory import keep_memory
    assert keep_memory()
before = faults()
for _ in range(20):
    blocks = [torch.ones(2_000_000) for _ in range(4)]
    del blocks
print(faults() - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_blocks_that_come_back_cost_no_page_faults() -> None:
    # Kept, they are touched for the first time only once.
    assert faults("keep") < faults("give back") / 5
