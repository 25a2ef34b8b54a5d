"""Shells of a real world: idle ones are kept and emptied, and what they promise is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.sandbox.model import Tier
from evotrainer.sandbox.report import PROMISES
from evotrainer.sandbox.shell import Entry, EpisodeShell, ShellLimits, Template

GIT_ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@example.com",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@example.com",
}


def packed(files: Mapping[str, Entry]) -> Template:
    """Files of a checkout as a shell takes them."""
    return Template({f"repo/{path}": entry for path, entry in files.items()})


IDLE = 4
"""Idle shells kept for later episodes."""


class ShellPool:
    """Hands out empty shells. A used one may be handed out again: nothing of an episode outlives `reset`."""

    def __init__(self, limits: ShellLimits, binds: Sequence[tuple[str, str]]) -> None:
        self._limits = limits
        self._binds = tuple(binds)
        self._idle: list[EpisodeShell] = []
        self._out: dict[int, EpisodeShell] = {}

    def take(self, template: Template | None) -> EpisodeShell:
        """A shell with these files (the template is closed); SandboxError."""
        try:
            while self._idle:
                shell = self._idle.pop()
                if not shell.closed:
                    shell.reset(template)
                    self._out[id(shell)] = shell
                    return shell
            return self.new(template)
        finally:
            if template is not None:
                template.close()

    def new(self, template: Template | None) -> EpisodeShell:
        """One that was never used; close it, or give it back. SandboxError."""
        shell = EpisodeShell.open(template, self._limits, self._binds)
        self._out[id(shell)] = shell
        return shell

    def give_back(self, shell: EpisodeShell) -> None:
        """No command of it may be running."""
        self._out.pop(id(shell), None)
        if not shell.closed and len(self._idle) < IDLE:
            self._idle.append(shell)
        else:
            shell.close()

    def drop(self) -> None:
        """End idle shells."""
        while self._idle:
            self._idle.pop().close()

    def tier(self) -> Tier:
        """Starts a shell where none is idle."""
        shell = self.take(None)
        found = shell.tier
        self.give_back(shell)
        return found

    def close(self) -> None:
        """End idle shells and those that nobody gave back."""
        self.drop()
        for shell in self._out.values():
            shell.close()
        self._out.clear()


class Isolation:
    """What `describe` of an environment asks a sandbox for."""

    def __init__(self, pool: ShellPool) -> None:
        self._pool = pool
        self._tier: Tier | None = None

    @property
    def tier(self) -> Tier:
        if self._tier is None:
            self._tier = self._pool.tier()
        return self._tier

    @property
    def report(self) -> Isolation:
        return self

    def isolation(self) -> dict[str, Any]:
        """What the tier promises, and what keeps it from tier A; JSON-able."""
        missing = [] if self.tier == "A" else ["no control group: memory of several processes together is not limited"]
        return {"promise": PROMISES[self.tier], "missing": missing}
