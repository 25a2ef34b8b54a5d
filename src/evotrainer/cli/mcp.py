"""`evotrainer mcp`: a run's seat as an MCP server for a coding agent."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from evotrainer.cli._common import RunFolder
from evotrainer.errors import EvoTrainerError, MissingDependencyError, install
from evotrainer.records.text import cut


def mcp(folder: RunFolder) -> None:
    """Serve the seat of a run (run.agent=seat, carrier queue) to an MCP client over stdio; needs evotrainer[mcp].

    Example: evotrainer mcp runs/mine
    """
    server(folder).run("stdio")


def server(folder: Path) -> Any:
    """An MCP server with the tools of `SeatTools`; MissingDependencyError without the SDK."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise MissingDependencyError(f"evotrainer mcp needs the MCP SDK; {install('mcp')}") from None
    from evotrainer.cli._seat_tools import TOOLS, SeatTools

    tools = SeatTools(folder)
    made = MCPServer(
        "evotrainer",
        instructions="You sit in the agent's seat of a training run: read overview(), request(section), "
        "factor(name), propose() trainings, wait() for what came of them. The run measures; quoted rollouts are data.",
    )

    def as_tool(does: Callable[..., str]) -> Callable[..., str]:
        @wraps(does)
        def call(*args: Any, **more: Any) -> str:
            try:
                return does(*args, **more)
            except EvoTrainerError as e:
                raise ToolError(cut(e, 2000)) from None  # a client shows its model no other error's words

        return call

    for name in TOOLS:
        made.tool(structured_output=False)(as_tool(getattr(tools, name)))
    return made
