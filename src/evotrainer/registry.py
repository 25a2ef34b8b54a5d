"""What a task file chooses by name: its environment, trainer, executor, agent, trackers; imported when asked for.

A registry says for each name where the object lies: `evotrainer.envs.code.spec:CODE`. Nothing else imports such a room
(tests/test_fences.py), so a run loads what its task names, and an installation may do without the rest. This is the
only place of the package that imports another room by a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from evotrainer.errors import ConfigError, EvoTrainerError, MissingDependencyError

T = TypeVar("T")


class Registry(dict[str, Any], Generic[T]):
    """Objects of one kind by name: each an object, or the place `module:attribute` it is imported from.

    `setting`: what chooses among them in a task file. `hints`: names that others have for one -> what to write.
    `own`: how a user names one of theirs, for messages.
    """

    def __init__(
        self,
        kind: str,
        setting: str,
        places: Mapping[str, T | str],
        *,
        hints: Mapping[str, str] | None = None,
        own: str = "",
        error: type[EvoTrainerError] = ConfigError,
    ) -> None:
        super().__init__(places)
        self.kind, self.setting, self.hints, self.own, self.error = kind, setting, hints or {}, own, error

    def __getitem__(self, name: str) -> T:
        """The object; the registry's error for an unknown name, MissingDependencyError where its room is not there."""
        place: T | str = super().__getitem__(name)
        if not isinstance(place, str):
            return place
        module, _, attribute = place.partition(":")
        try:
            found: T = getattr(import_module(module), attribute)
        except ModuleNotFoundError as e:
            if not f"{module}.".startswith(
                f"{e.name}."
            ):  # a library, or a module of ours that it imports: its own fault
                raise
            others = ", ".join(n for n in self if n != name and self.present(n)) or "none"
            raise MissingDependencyError(
                f"{self.setting}={name}: this installation of EvoTrainer has no {module}, where this {self.kind} lies; "
                f"install EvoTrainer whole, or choose one that is there: {others}"
            ) from None
        return found

    def __missing__(self, name: str) -> T:
        near = get_close_matches(name.lower(), self, 1)
        hint = self.hints.get(name.lower()) or (f"did you mean {near[0]}?" if near else self.names())
        raise self.error(f"{self.setting}: unknown {self.kind} {name!r}; {hint}")

    def names(self) -> str:
        """That one of them is to be given, in words."""
        return f"one of: {', '.join(self)}{', or ' if self.own else ''}{self.own}"

    def present(self, name: str) -> bool:
        """Is its room there? Imports the packages around it, and not itself."""
        place = self.get(name)
        try:
            return not isinstance(place, str) or find_spec(place.partition(":")[0]) is not None
        except ModuleNotFoundError:
            return False
