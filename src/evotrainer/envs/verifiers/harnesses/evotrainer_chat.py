"""verifiers' own chat loop (the program of its `null` harness), run in the process of verifiers: no uv, no download, no
start of an interpreter for every turn."""

from __future__ import annotations

import contextvars
import ssl
import sys
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import certifi
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]
NAME = "evotrainer_chat"
program: dict[str, Any] = {"__name__": NAME}
exec(compile(CHAT_PROGRAM_SOURCE, NAME, "exec"), program)
parse, given = program["parse_args"], contextvars.ContextVar[Any]("arguments of the chat loop")
program["parse_args"] = given.get
certificates = ssl.create_default_context(cafile=certifi.where())  # read once, and not for every turn
program["certifi"] = types.SimpleNamespace(where=lambda: certificates)


class InProcess:
    """In the place of the runtime that would start the program."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime

    async def write(self, path: str, data: bytes) -> None:
        await self.runtime.write(path, data)

    async def prepare_uv_script(self, *_: Any, **__: Any) -> list[str]:
        return []

    async def run_program(self, argv: list[str], env: Mapping[str, str]) -> Any:
        before, sys.argv = sys.argv, [NAME, *argv]
        try:
            args = parse()
        finally:
            sys.argv = before
        if args.initial_messages_file:
            args.initial_messages_file = str(Path(self.runtime.workdir) / args.initial_messages_file)
        given.set(args)
        try:
            await program["main"]()
        except SystemExit as e:  # how the program says that its connection is gone
            return ProgramResult(exit_code=int(e.code or 0), stdout="", stderr=traceback.format_exc())
        except Exception:  # as its traceback would have been printed
            return ProgramResult(exit_code=1, stdout="", stderr=traceback.format_exc())
        return ProgramResult(exit_code=0, stdout="", stderr="")


class ChatHarness(NullHarness):
    async def setup(self, runtime: Any) -> None: ...

    async def launch(self, ctx: Any, trace: Any, runtime: Any, *more: Any, **named: Any) -> Any:
        return await super().launch(ctx, trace, InProcess(runtime), *more, **named)
