"""The filter decides as its tables say, on both machines: checked with a small interpreter for the kernel's BPF."""

from __future__ import annotations

import struct

import pytest

from evotrainer.sandbox.seccomp import build_filter

ALLOW, KILL, REFUSE, MISSING = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel would return for this call (linux/filter.h, the operations the filter uses)."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    code = list(struct.iter_unpack("<HBBI", program))
    at = accumulator = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x05:
            at += value
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            at += yes if test[operation] else no


@pytest.mark.parametrize("own_world", [True, False])
@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        ("x86_64", {"read": 0, "write": 1, "futex": 202, "openat": 257, "socket": 41, "execve": 59, "ptrace": 101}),
        ("aarch64", {"read": 63, "write": 64, "futex": 98, "openat": 56, "socket": 198, "execve": 221, "ptrace": 117}),
    ],
)
def test_reading_is_allowed_and_reaching_out_is_not(machine: str, numbers: dict[str, int], own_world: bool) -> None:
    program = build_filter(own_world, machine)
    for name in ("read", "write", "futex", "openat"):
        assert decide(program, ARCH[machine], numbers[name]) == ALLOW, name
    for name in ("socket", "execve", "ptrace"):
        assert decide(program, ARCH[machine], numbers[name]) == REFUSE, name
    writing = ALLOW if own_world else REFUSE
    assert decide(program, ARCH[machine], numbers["openat"], 0, 0, 0o101) == writing


@pytest.mark.parametrize("own_world", [True, False])
def test_arguments_are_looked_at(own_world: bool) -> None:
    def x86(number: int, *arguments: int) -> int:
        return decide(build_filter(own_world, "x86_64"), ARCH["x86_64"], number, *arguments)

    assert x86(56, 0x11) == ALLOW, "fork"
    assert x86(56, 0x10000000) == REFUSE, "clone into a user namespace"
    assert x86(56, 0x40000000) == REFUSE, "clone into a network namespace"
    assert x86(435) == MISSING, "clone3 does not exist"
    assert x86(16, 1, 0x5401) == ALLOW, "is it a terminal?"
    assert x86(16, 1, 0x5412) == REFUSE, "type into the terminal (TIOCSTI)"
    assert x86(53, 1, 1) == ALLOW, "a pair of stream sockets"
    assert x86(53, 1, 2) == REFUSE, "a pair of datagram sockets"
    assert x86(53, 2, 1) == REFUSE, "a pair of internet sockets"
    assert x86(302, 0) == ALLOW, "own limits"
    assert x86(302, 77) == REFUSE, "another process's limits"
    assert x86(165, 0, 0, 0, 32) == REFUSE, "remount"
    assert x86(62, 1, 9) == (ALLOW if own_world else REFUSE), "signals"
    assert x86(87) == (ALLOW if own_world else REFUSE), "unlink"


def test_other_calling_conventions_are_no_way_around() -> None:
    program = build_filter(True, "x86_64")
    assert decide(program, 0x40000003, 11) == KILL, "32 bit calls"
    assert decide(program, ARCH["x86_64"], 0x40000000) == REFUSE, "x32 calls"
    assert decide(program, ARCH["x86_64"], 5000) == REFUSE, "calls of a newer kernel"


def test_a_machine_without_tables_has_no_filter() -> None:
    assert build_filter(True, "riscv64") == b""
