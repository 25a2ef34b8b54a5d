"""Whether the tests' folders fit a disk in memory."""

from __future__ import annotations

import os
from pathlib import Path

NEEDED = 2**30
"""Bytes: many times what a test run has had at once."""


def fits_in_memory(disk: Path) -> bool:
    """It is there, programs may be started from it, and disk and memory have room."""
    try:
        about = os.statvfs(disk)
        there = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        room = about.f_bavail * about.f_frsize
        available = int(there["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return False
    roomy = room >= NEEDED and available >= 4 * NEEDED
    return roomy and not about.f_flag & os.ST_NOEXEC and os.access(disk, os.W_OK)
