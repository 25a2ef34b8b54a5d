"""`evotrainer ui`: a run, or a folder of runs, in the browser."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from evotrainer.cli._page import Host, Port, address, listen
from evotrainer.errors import ConfigError
from evotrainer.records.output import print

Folder = Annotated[Path, typer.Argument(metavar="[RUN | FOLDER]", help="A run, or a folder that holds runs.")]
Allow = Annotated[
    bool, typer.Option("--allow-actions", help="Let whoever has the printed address answer where a run asks a human.")
]
HERE = ("127.0.0.1", "localhost", "::1")


def ui(
    folder: Folder = Path("runs"),
    *,
    host: Host = "127.0.0.1",
    port: Port = None,
    allow_actions: Allow = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    beside: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Watch runs in the browser: what was found, tried and proven, curves as they train, every rollout.

    It reads ledgers and rollouts, of finished runs and of those that other processes train, and changes nothing.

    Example: evotrainer ui runs
    """
    from evotrainer.ui.server import new_token, place_of, serve

    if beside:
        from evotrainer.executors.process import die_with_parent

        die_with_parent(beside)
    if allow_actions and host not in HERE:
        raise ConfigError(f"--allow-actions is for this machine alone; leave --host {host} out, and tunnel to the page")
    token = new_token() if allow_actions else ""
    place = place_of(folder, wait=bool(beside), actions=allow_actions)
    listening = listen(host, port) if fd is None else socket.socket(fileno=fd)
    shown = address(listening) + (f"#token={token}" if token else "")
    print(f"page: {shown}", flush=True)
    if host not in HERE:
        print("everybody who reaches this address can read the runs and their rollouts; nobody can change them")
    print("Ctrl-C ends it", flush=True)
    if open_browser:
        open_address(shown)
    serve(place, listening, host, token)


def open_address(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
