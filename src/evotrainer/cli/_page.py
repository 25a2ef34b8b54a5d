"""Where the page in the browser listens, and the page beside a run, in a process of its own."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.errors import ConfigError, install
from evotrainer.records.output import print

Host = Annotated[str, typer.Option(help="Address to serve on; who reaches another than this machine can read it.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Default: 8642, or any free one.")]
PORT = 8642
"""The one that is tried first; where it is taken, and none was asked for, any free one is."""


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens; ConfigError where the port is taken or the address is none of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, number), family=family)
        except OSError as e:
            if port is None and number:
                continue
            taken = "another program serves there: give another --port, or --port 0 for any free one"
            other = "give --host 127.0.0.1, or another address of this machine"
            why = taken if e.errno == errno.EADDRINUSE else other
            raise ConfigError(f"cannot serve on {host}:{number}: {e.strerror or e}; {why}") from None
        except UnicodeError as e:
            raise ConfigError(f"--host {host}: {e}; give an address of this machine") from None
    raise ConfigError(f"no port is free on {host}; give one with --port")


def address(found: socket.socket) -> str:
    """What a browser opens."""
    host, port = found.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@contextmanager
def page_beside(folder: Path, wanted: bool) -> Iterator[None]:
    """The page of a run while it goes on, its address printed first. Where there can be none the run goes on alone."""
    process = _begin(folder) if wanted else None
    try:
        yield
    finally:
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def _begin(folder: Path) -> subprocess.Popen[bytes] | None:
    if not all(importlib.util.find_spec(m) for m in ("starlette", "uvicorn")):
        print(f"evotrainer: note: --ui: no page, it needs {install('ui')}; the run goes on", file=sys.stderr)
        return None
    try:
        with listen("127.0.0.1", None) as found:
            words = ["ui", str(folder), "--fd", str(found.fileno()), "--beside", str(os.getpid())]
            done = subprocess.Popen(
                [sys.executable, "-m", "evotrainer", *words], pass_fds=[found.fileno()], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            print(f"page: {address(found)}", flush=True)
            return done
    except (ConfigError, OSError) as e:
        print(f"evotrainer: note: --ui: no page: {e}; the run goes on", file=sys.stderr)
        return None
