"""Whether the tests' folders fit a disk in memory."""

from __future__ import annotations

import os
from pathlib import Path

NEEDED = 4 * 2**30
"""Bytes: three times what a whole test run has had at once."""


def fits_in_memory(disk: Path) -> bool:
    """It is there, programs may be started from it, and disk and memory have room."""
    try:
        about = os.statvfs(disk)
        there = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        available = int(there["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return False
    room = min(about.f_bavail * about.f_frsize, available - NEEDED)
    return room >= NEEDED and not about.f_flag & os.ST_NOEXEC and os.access(disk, os.W_OK)
