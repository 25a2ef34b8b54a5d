"""The seccomp filter, assembled by hand: an allow list of system calls as a classic BPF program.

Kernel: Documentation/userspace-api/seccomp_filter.rst. What is not listed fails with EPERM. The test on the call's
number is a binary tree over ranges, so that installing it (the kernel replays the program once per call number) and
running it stay cheap. Tables are `name:x86_64:aarch64`, `-` where a machine lacks the call.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Callable
from itertools import pairwise

_ALWAYS = """
    read:0:63 write:1:64 close:3:57 fstat:5:80 lseek:8:62 mmap:9:222 mprotect:10:226 munmap:11:215
    brk:12:214 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136
    rt_sigtimedwait:128:137 rt_sigsuspend:130:133 pread64:17:67 pwrite64:18:68 readv:19:65
    writev:20:66 preadv:295:69 pwritev:296:70 access:21:- faccessat:269:48 faccessat2:439:439
    pipe:22:- pipe2:293:59 select:23:- pselect6:270:72 poll:7:- ppoll:271:73 sched_yield:24:124
    mremap:25:216 msync:26:227 mincore:27:232 madvise:28:233 dup:32:23 dup2:33:- dup3:292:24
    pause:34:- nanosleep:35:101 clock_nanosleep:230:115 getitimer:36:102 setitimer:38:103 alarm:37:-
    timer_create:222:107 timer_settime:223:110 timer_gettime:224:108 timer_getoverrun:225:109
    timer_delete:226:111 timerfd_create:283:85 timerfd_settime:286:86 timerfd_gettime:287:87
    getpid:39:172 getppid:110:173 gettid:186:178 getpgrp:111:- getpgid:121:155 getsid:124:156
    exit:60:93 exit_group:231:94 wait4:61:260 waitid:247:95 uname:63:160
    fsync:74:82 fdatasync:75:83 ftruncate:77:46 fallocate:285:47 getdents:78:- getdents64:217:61
    getcwd:79:17 chdir:80:49 fchdir:81:50 readlink:89:- readlinkat:267:78 umask:95:166
    gettimeofday:96:169 getrlimit:97:163 getrusage:98:165 times:100:153
    getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getresuid:118:148
    getresgid:120:150 getgroups:115:158 capget:125:90 sigaltstack:131:132
    sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120
    sched_get_priority_max:146:125 sched_get_priority_min:147:126 getpriority:140:141
    set_tid_address:218:96 set_robust_list:273:99 get_robust_list:274:100 restart_syscall:219:128
    clock_gettime:228:113 clock_getres:229:114 time:201:- epoll_create:213:-
    epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232:- epoll_pwait:281:22 eventfd:284:-
    eventfd2:290:19 signalfd4:289:74 stat:4:- lstat:6:- newfstatat:262:79 statx:332:291
    statfs:137:43 fstatfs:138:44 getrandom:318:278 memfd_create:319:279 rseq:334:293
    membarrier:324:283 sendfile:40:71 copy_file_range:326:285 getcpu:309:168 close_range:436:436
    fork:57:- vfork:58:- sendto:44:206 recvfrom:45:207 shutdown:48:210 getsockname:51:204
    getpeername:52:205 setsockopt:54:208 sync_file_range:277:84 arch_prctl:158:-
"""
_INSIDE = """
    rename:82:- renameat:264:38 renameat2:316:276 mkdir:83:- mkdirat:258:34 rmdir:84:- link:86:-
    linkat:265:37 symlink:88:- symlinkat:266:36 unlink:87:- unlinkat:263:35 chmod:90:- fchmod:91:52
    fchmodat:268:53 utimensat:280:88 utime:132:- utimes:235:- futimesat:261:- truncate:76:45
    open:2:- creat:85:- openat:257:56 kill:62:129 tkill:200:130 tgkill:234:131 setsid:112:157
    setpgid:109:154 recvmsg:47:212 pidfd_open:434:434 capset:126:91
"""
_COMMANDS = """
    execve:59:221 execveat:322:281 setrlimit:160:164 setpriority:141:140 sched_setaffinity:203:122
    chown:92:- fchown:93:55 lchown:94:- fchownat:260:54 fchmodat2:452:452 mknod:133:- mknodat:259:33
    getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11 llistxattr:195:12
    flistxattr:196:13 splice:275:76 pwritev2:328:287 readahead:187:213
    pidfd_send_signal:424:424 sysinfo:99:179 futex:202:98 getsockopt:55:209
"""
_LOCKS = """
    fcntl:72:25 flock:73:32 inotify_init:253:- inotify_init1:294:26 inotify_add_watch:254:27
    inotify_rm_watch:255:28
"""
_LOOPBACK = """
    sendmsg:46:211 bind:49:200 listen:50:201 accept:43:202 accept4:288:242 connect:42:203 sendmmsg:307:269
    recvmmsg:299:243
"""
_SPECIAL = """
    clone:56:220 clone3:435:435 ioctl:16:29 prctl:157:167 socketpair:53:199 prlimit64:302:261
    open:2:- openat:257:56 mount:165:40 socket:41:198 fcntl:72:25 futex:202:98 getsockopt:55:209
    fadvise64:221:223 preadv2:327:286
"""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# classic BPF: LD|W|ABS, JMP|JA, JMP|JEQ|K, JMP|JGE|K, JMP|JSET|K, ALU|AND|K, RET|K
_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x54, 0x06
# SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_ZYGOTES_NAMESPACES = 0x20020000
"""CLONE_NEWPID, NEWNS: what the zygote needs, and what takes CAP_SYS_ADMIN, which no child has."""
_PLAIN_MOUNT = 2 | 4
"""MS_NOSUID, MS_NODEV: the one mount the zygote's children make, while they still may."""
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000
"""O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, the bit of O_TMPFILE (without O_DIRECTORY)."""
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_PRCTLS = (3, 4, 15, 16, 21, 39, 0x53564D41)
"""GET_DUMPABLE, SET_DUMPABLE (a child needs it to raise its own score), SET_NAME, GET_NAME, GET_SECCOMP,
GET_NO_NEW_PRIVS, SET_VMA (names of memory areas)."""
_COMMAND_PRCTLS = (*_PRCTLS, 1, 2, 23, 36, 37, 38)
"""And SET_PDEATHSIG, GET_PDEATHSIG, CAPBSET_READ, SET/GET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS."""
_FCNTLS = (0, 1, 2, 3, 4, 1030, 1031, 1032, 1033, 1034)
"""Duplicates, flags, sizes of pipes, seals. No locks, leases and notices: on the system's files they are a channel
between programs that run at the same time."""
_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: those that end at the borders of a network namespace (AF_VSOCK does not)."""

Block = list[bytes]


def _op(code: int, value: int = 0, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value & 0xFFFFFFFF)


def _argument(index: int) -> bytes:
    """Load the low 32 bits of a call's argument (all arguments tested here are 32 bits wide)."""
    # struct seccomp_data: nr (4 bytes), arch (4), instruction pointer (8), then six arguments of 8 bytes
    return _op(_LOAD, 16 + 8 * index)


def _errno(code: int) -> bytes:
    # SECCOMP_RET_ERRNO
    return _op(_RETURN, 0x00050000 | code)


_YES = _op(_RETURN, _ALLOW)
_NO = _errno(errno.EPERM)


def _one_of(index: int, values: tuple[int, ...]) -> Block:
    """Allow when the argument is one of `values`."""
    block = [_argument(index)]
    for value in values:
        block += [_op(_EQUAL, value, 0, 1), _YES]
    return [*block, _NO]


def _without_bits(index: int, bits: int) -> Block:
    """Allow when none of the bits is set."""
    return [_argument(index), _op(_ANY_BIT, bits, 1, 0), _YES, _NO]


def _stream_pair() -> Block:
    """socketpair(AF_UNIX, SOCK_STREAM): a datagram pair could still address other sockets."""
    # 0xF masks SOCK_NONBLOCK and SOCK_CLOEXEC, which share the argument with the type
    second = [_argument(1), _op(_AND, 0xF), _op(_EQUAL, 1, 0, 1), _YES]
    return [_argument(0), _op(_EQUAL, 1, 0, len(second)), *second, _NO]


_PRIVATE, _CLOCK = 128, 256
"""FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME."""
_WAITS = (0, 9)
"""FUTEX_WAIT, FUTEX_WAIT_BITSET."""
_SOCKET_OPTIONS = (3, 4, 7, 8, 38, 39)
"""SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_PROTOCOL, SO_DOMAIN: others count what earlier programs did
(SO_COOKIE), or are handles on other processes (SO_PEERPIDFD)."""
_ADVICES = (0, 1, 2, 3, 5)
"""All but POSIX_FADV_DONTNEED, which empties the cache that all programs share."""


def _own_futex() -> Block:
    """Waking up others is for memory of one's own: a shared page of a system file would wake another program."""
    private = [_argument(1), _op(_ANY_BIT, _PRIVATE, 0, 1), _YES]
    waits = [_argument(1), _op(_AND, 127)]
    for operation in _WAITS:
        waits += [_op(_EQUAL, operation, 0, 1), _YES]
    return [*private, *waits, _NO]


def _socket_option() -> Block:
    allowed = _one_of(2, _SOCKET_OPTIONS)
    # level SOL_SOCKET only
    return [_argument(1), _op(_EQUAL, 1, 1, 0), _NO, *allowed]


def _numbers(table: str, column: int) -> dict[str, int]:
    rows = (row.split(":") for row in table.split())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _rules(machine: str, own_namespaces: bool) -> dict[int, Block]:
    """System call number -> code that ends in a return."""
    column = 1 if machine == "x86_64" else 2
    rules: dict[int, Block] = {n: [_YES] for n in _numbers(_ALWAYS, column).values()}
    special = _numbers(_SPECIAL, column)
    checks: dict[str, Callable[[], Block]] = {
        "clone": lambda: _without_bits(0, _NEW_NAMESPACES),
        "clone3": lambda: [_errno(errno.ENOSYS)],  # its flags lie in memory; libc falls back to clone
        "ioctl": lambda: _one_of(1, _IOCTLS),
        "fcntl": lambda: _one_of(1, _FCNTLS),
        "futex": _own_futex,
        "getsockopt": _socket_option,
        "fadvise64": lambda: _one_of(3, _ADVICES),
        "prctl": lambda: _one_of(0, _PRCTLS),
        "socketpair": _stream_pair,
        "prlimit64": lambda: _one_of(0, (0,)),
        "open": lambda: _without_bits(1, _WRITING),
        "openat": lambda: _without_bits(2, _WRITING),
    }
    rules.update({special[name]: build() for name, build in checks.items() if name in special})
    if own_namespaces:
        rules.update({n: [_YES] for n in _numbers(_INSIDE, column).values()})
        # the zygote is under this filter, too, and must go on making namespaces for its children
        rules[special["clone"]] = _without_bits(0, _NEW_NAMESPACES & ~_ZYGOTES_NAMESPACES)
        rules[special["mount"]] = _one_of(3, (_PLAIN_MOUNT,))
    return rules


def _command_rules(machine: str, loopback: bool, locks: bool) -> dict[int, Block]:
    """What the commands of an episode shell may call: a program's calls without any namespace,
    and starting programs."""
    column = 1 if machine == "x86_64" else 2
    special = _numbers(_SPECIAL, column)
    rules = _rules(machine, own_namespaces=True)
    del rules[special["mount"]]
    rules |= {n: [_YES] for n in _numbers(_COMMANDS, column).values()}
    rules[special["clone"]] = _without_bits(0, _NEW_NAMESPACES)
    rules[special["prctl"]] = _one_of(0, _COMMAND_PRCTLS)
    rules[special["preadv2"]] = _one_of(5, (0,))
    if locks:
        rules |= {n: [_YES] for n in _numbers(_LOCKS, column).values()}
    if loopback:
        rules |= {n: [_YES] for n in _numbers(_LOOPBACK, column).values()}
        rules[special["socket"]] = _one_of(0, _FAMILIES)
    return rules


def _tree(ranges: list[tuple[int, Block]]) -> Block:
    """Code for `(first number, code)` ranges in order: halve until one is left."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    low, high = _tree(ranges[:middle]), _tree(ranges[middle:])
    # a conditional jump reaches 255 instructions at most; the plain jump behind it has 32 bits
    return [_op(_AT_LEAST, ranges[middle][0], 0, 1), _op(_JUMP, len(low)), *low, *high]


def _ranges(rules: dict[int, Block]) -> list[tuple[int, Block]]:
    """Merge neighbours with the same code; numbers in no rule are refused."""
    marks: list[tuple[int, Block]] = [(0, [_NO])]
    numbers = sorted(rules)
    # gaps become ranges that refuse: what is not in a table, also calls of kernels to come, is denied
    for number, following in pairwise([*numbers, 1 << 32]):
        marks.append((number, rules[number]))
        if following > number + 1:
            marks.append((number + 1, [_NO]))
    merged: list[tuple[int, Block]] = []
    for start, block in marks:
        # call 0 replaces the refusal that the ranges begin with
        if merged and merged[-1][0] == start:
            merged.pop()
        if not merged or merged[-1][1] != block:
            merged.append((start, block))
    return merged


def build_filter(own_namespaces: bool, machine: str | None = None) -> bytes:
    """The BPF program; empty for a machine without table (then no filter can be installed).

    `own_namespaces`: every program has its own process and mount namespace, so signals and file changes reach no other
    program, and the zygote itself is filtered: the few more calls it needs are refused to a child for want of
    capabilities.
    Without it signals and file changes are refused, and files can only be opened for reading.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        return b""
    return _assemble(machine, _rules(machine, own_namespaces))


def build_command_filter(loopback: bool = False, locks: bool = False, machine: str | None = None) -> bytes:
    """The BPF program for commands of an episode shell; empty for a machine without table.

    They may start programs and change files (of their own mount namespace); `loopback`: and use sockets, which reach
    nothing but their own network namespace; `locks`: and take advisory locks and watch files.
    """
    machine = machine or platform.machine()
    return _assemble(machine, _command_rules(machine, loopback, locks)) if machine in _AUDIT_ARCH else b""


def _assemble(machine: str, rules: dict[int, Block]) -> bytes:
    code = [
        _op(_LOAD, 4),
        # the architecture first: the same number is another call in the 32-bit ABI
        _op(_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, 0),
        *_tree(_ranges(rules)),
    ]
    return b"".join(code)
