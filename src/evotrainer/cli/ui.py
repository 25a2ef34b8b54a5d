"""`evotrainer ui`: a run, or a folder of runs, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evotrainer.records.output import print


def ui(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUN | FOLDER]", help="A run, or a folder that holds runs.")
    ] = Path("runs"),
    *,
    host: Annotated[
        str, typer.Option(help="Address to serve on; others than this machine can read then.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: 8642, or any free one.")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Watch runs in the browser: what was found, tried and proven, curves as they train, every rollout.

    It reads ledgers and rollouts, of finished runs and of those that other processes train, and changes nothing.

    Example: evotrainer ui runs
    """
    from evotrainer.ui.server import address, listen, place_of, serve

    place = place_of(folder)
    listening = listen(host, port)
    print(f"page: {address(listening)}", flush=True)
    if host not in ("127.0.0.1", "localhost", "::1"):
        print("everybody who reaches this address can read the runs and their rollouts; nobody can change them")
    print("Ctrl-C ends it")
    serve(place, listening, host, lambda: _open(address(listening)) if open_browser else None)


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
