"""Attacks on the machine, as data. Each prints BREACH when it got what it must not have.

`$secret`, `$folder`, `$port`, `$token`, `$victim` are targets made for the attack and open to everybody: only the sandbox
stands before them. Every attack bounds itself, so that running it unprotected does no harm.
"""

from __future__ import annotations

ESCAPES: dict[str, str] = {}

ESCAPES["connects by TCP"] = """
import socket
socket.create_connection(("127.0.0.1", $port), timeout=2)
print("BREACH")
"""
ESCAPES["sends a datagram"] = """
import socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.connect(("127.0.0.1", $port))
end.send(b"x")
print("BREACH")
"""
ESCAPES["talks to an abstract socket"] = """
import socket
socket.socket(socket.AF_UNIX).connect("\\x00$token")
print("BREACH")
"""
ESCAPES["reads a secret file"] = """
if open("$secret").read() == "the secret": print("BREACH")
"""
ESCAPES["reads a secret through a symbolic link"] = """
import os
os.symlink("$secret", "link")
if open("link").read() == "the secret": print("BREACH")
"""
ESCAPES["lists the host's users"] = """
if "root:" in open("/etc/passwd").read(): print("BREACH")
"""
ESCAPES["makes a file outside"] = """
open("$folder/made-by-attack", "w").write("x")
print("BREACH")
"""
ESCAPES["overwrites a file outside"] = """
with open("$secret", "r+") as file: file.write("the secret")
print("BREACH")
"""
ESCAPES["kills a process"] = """
import os
os.kill($victim, 9)
print("BREACH")
"""
ESCAPES["traces a process"] = """
import ctypes
if ctypes.CDLL(None).ptrace(0x4206, $victim, 0, 0) == 0: print("BREACH")
"""
ESCAPES["reads a process's environment"] = """
if b"THE_SECRET=" in open("/proc/$victim/environ", "rb").read(): print("BREACH")
"""
ESCAPES["reads a process's memory"] = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
start = int(open("/proc/$victim/maps").read().split("-")[0], 16)
local = ctypes.create_string_buffer(4)
here = (ctypes.c_size_t * 2)(ctypes.addressof(local), 4)
there = (ctypes.c_size_t * 2)(start, 4)
if libc.process_vm_readv($victim, here, 1, there, 1, 0) == 4: print("BREACH")
"""
ESCAPES["counts the machine's processes"] = """
import os
if len([p for p in os.listdir("/proc") if p.isdigit()]) > 3: print("BREACH")
"""
ESCAPES["bombs with processes"] = """
import os, time
for made in range(40):
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
print("BREACH")
"""
ESCAPES["takes memory"] = """
block = bytearray(700 << 20)
print("BREACH")
"""
ESCAPES["takes memory in many processes"] = """
import os, time
ends = []
for i in range(8):
    r, w = os.pipe()
    if os.fork() == 0:
        block = bytearray(110 << 20)
        for j in range(0, len(block), 4096): block[j] = 1
        os.write(w, b"x")
        time.sleep(1)
        os._exit(0)
    os.close(w)
    ends.append(r)
if all(os.read(r, 1) == b"x" for r in ends): print("BREACH")
"""
ESCAPES["fills the disk"] = """
for i in range(20):
    with open("big%d" % i, "wb") as file: file.write(bytes(8 << 20))
print("BREACH")
"""
ESCAPES["uses up inodes"] = """
import os
for i in range(3000): open("small%d" % i, "w").close()
for i in range(3000): os.unlink("small%d" % i)
print("BREACH")
"""
ESCAPES["starts a shell"] = """
import os
if os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {}), 0)[1] == 7 << 8: print("BREACH")
"""
ESCAPES["makes a user namespace"] = """
import ctypes
if ctypes.CDLL(None).unshare(0x10000000) == 0: print("BREACH")
"""
ESCAPES["starts a kernel ring"] = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(425, 1, ctypes.create_string_buffer(200)) >= 0 or ctypes.get_errno() != 1: print("BREACH")
"""
ESCAPES["keeps a key in the kernel"] = """
import ctypes, platform
number = {"x86_64": 250, "aarch64": 219}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(number, 1, b"kept") >= 0 or ctypes.get_errno() != 1: print("BREACH")
"""
ESCAPES["swallows its own timeouts"] = """
import time
end = time.process_time() + 1.2
while time.process_time() < end:
    try:
        while time.process_time() < end: pass
    except BaseException: pass
print("BREACH")
"""
ESCAPES["computes without letting timers in"] = """
import signal
signal.setitimer(signal.ITIMER_PROF, 0)
if len(str(pow(7, 1 << 23).bit_length())): print("BREACH")
"""
ESCAPES["sleeps"] = """
import time
time.sleep(2.5)
print("BREACH")
"""
ESCAPES["kills the sandbox"] = """
import os
boss = os.getppid()
os.kill(boss, 0)
if boss > 0: print("BREACH")
"""

LEAVES_BEHIND = """
import os
for path in ("left", "/tmp/left-$token", "/dev/shm/left-$token"):
    try: open(path, "w").close()
    except OSError: pass
"""
LOOKS_FOR_LEFTOVERS = """
import os
for path in ("left", "/tmp/left-$token", "/dev/shm/left-$token"):
    if os.path.exists(path): print("BREACH", path)
"""
SHARED_MEMORY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = libc.shmget($port, 4096, 0o1666)
print("found" if made >= 0 else "none")
libc.shmget($port, 4096, 0o1666 | 0o1000)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    try: os.setsid()
    except OSError: pass
    if os.fork() == 0:
        time.sleep(20)
    os._exit(0)
"""
EARLIER = "ANSWER = 'the earlier program had ' + 'MARK' + '-{number}'\nprint(ANSWER)"
SEARCHES_MEMORY = r"""
import ctypes, os
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
r, w = os.pipe()
found = set()
def page(address):
    return os.read(r, 4096) if libc.write(w, ctypes.c_void_p(address), 4096) == 4096 else b""
def scan(low, high):
    for address in range(low, high, 4096):
        text = page(address)
        at = text.find(b"MA" + b"RK-")
        while at >= 0:
            found.add(bytes(text[at : at + 9]))
            at = text.find(b"MA" + b"RK-", at + 1)
mine = "own " + "MA" + "RK-own"
top = libc.sbrk(0) >> 12 << 12
scan(top - (4 << 20), top)
middle = id(object()) >> 12 << 12
scan(middle - (3 << 20), middle + (3 << 20))
middle = id(mine) >> 12 << 12
scan(middle - (1 << 20), middle + (1 << 20))
print(sorted(found))
"""
