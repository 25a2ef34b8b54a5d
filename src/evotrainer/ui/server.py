"""Serving: a socket on an address of this machine, one process, until it is ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError, MissingDependencyError, install

if TYPE_CHECKING:
    from evotrainer.ui.places import AuditPlace, RunsPlace

PORT = 8642
"""The one that is tried first; where it is taken, and none was asked for, any free one is."""


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens; ConfigError where the port is taken or the address is none of this machine."""
    for number in (PORT, 0) if port is None else (port,):
        try:
            found = socket.create_server((host, number), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as e:
            if port is None and number:
                continue
            more = "another program serves there: give another --port, or --port 0 for any free one"
            why = more if e.errno == 98 else "give --host 127.0.0.1, or another address of this machine"
            raise ConfigError(f"cannot serve on {host}:{number}: {e.strerror or e}; {why}") from None
        except (OverflowError, UnicodeError) as e:
            raise ConfigError(f"--host {host} --port {number}: {e}; give an address of this machine") from None
        found.set_inheritable(True)
        return found
    raise ConfigError(f"no port is free on {host}; give one with --port")


def address(found: socket.socket) -> str:
    """What a browser opens."""
    host, port = found.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def place_of(folder: Path, wait: bool = False) -> RunsPlace:
    """What there is to serve in a folder; ConfigError where it holds no run. `wait`: a run will begin there."""
    check_installed()
    from evotrainer.ui.places import RunsPlace

    if wait or (folder / "ledger.db").exists():
        return RunsPlace(folder, alone=True)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; give a run, or a folder of runs")
    place = RunsPlace(folder)
    if not place.runs:
        raise ConfigError(
            f"there is no run in {folder}: no folder below it holds a ledger.db; give the folder of a run, or one that "
            "holds runs, such as runs"
        )
    return place


def check_installed() -> None:
    """MissingDependencyError with the command that installs what the page needs."""
    try:
        import starlette
        import uvicorn
    except ImportError as e:
        raise MissingDependencyError(f"the page needs starlette and uvicorn ({e}); {install('ui')}") from None
    del starlette, uvicorn


def serve(place: RunsPlace | AuditPlace, listening: socket.socket, host: str, ready: Callable[[], Any]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called once it does."""
    import uvicorn

    from evotrainer.ui.app import application

    os.nice(5)
    config = uvicorn.Config(
        application(place, host), log_level="critical", access_log=False, lifespan="off", timeout_keep_alive=10,
        timeout_graceful_shutdown=1, server_header=False, h11_max_incomplete_event_size=16_384, http="h11", ws="none",
        limit_concurrency=600,
    )  # fmt: skip
    ready()
    uvicorn.Server(config).run(sockets=[listening])
