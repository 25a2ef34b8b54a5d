"""Serving: one process over a socket that listens, until it is ended."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import ConfigError, MissingDependencyError, install

if TYPE_CHECKING:
    from evotrainer.ui.places import AuditPlace, RunsPlace


def new_token() -> str:
    """What lets a browser answer."""
    return secrets.token_urlsafe(24)


def place_of(folder: Path, wait: bool = False, actions: bool = False) -> RunsPlace:
    """What there is to serve in a folder; ConfigError where it holds no run. `wait`: a run will begin there;
    `actions`: may it be answered?"""
    check_installed()
    from evotrainer.ui.places import RunsPlace

    if wait or (folder / "ledger.db").exists():
        return RunsPlace(folder, alone=True, actions=actions)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; give a run, or a folder of runs")
    place = RunsPlace(folder, actions=actions)
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


def serve(place: RunsPlace | AuditPlace, listening: socket.socket, host: str, token: str = "") -> None:
    """Serve until SIGINT or SIGTERM; `token` lets a browser answer what runs ask."""
    import uvicorn

    from evotrainer.ui.app import application

    os.nice(5)  # a training may run beside
    config = uvicorn.Config(
        application(place, host, token), log_level="critical", access_log=False, lifespan="off", timeout_keep_alive=10,
        timeout_graceful_shutdown=1, server_header=False, h11_max_incomplete_event_size=16_384, http="h11", ws="none",
        limit_concurrency=600,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])
