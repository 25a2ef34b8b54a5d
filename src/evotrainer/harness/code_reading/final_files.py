"""The files of an agent as its edits and writes left them.

A file of which only edits are seen is known by the texts that these put in. Whether an edit took effect is not always
recorded: one whose old text is not in a file that is known did nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import dedent

from evotrainer.harness.code_reading.actions import actions_of, normal_form, texts_before_actions, with_written_calls
from evotrainer.harness.code_reading.file_changes import OPENED, Change, changes
from evotrainer.harness.code_reading.paths import cleaned, same_file
from evotrainer.records.rollout import Turn

MAX_FILES = 64
MAX_FILE = 60_000
"""Characters of a file that are kept."""
MAX_ACTIONS = 2000
_OPENS = re.compile(r"(?:open|create|goto|view)\s+([\w@+./~-]*[./][\w@+./~-]*)")


@dataclass(slots=True)
class EditedFile:
    """One file that an agent touched."""

    whole: bool
    """All of it is known; otherwise only `parts`, what edits put in"""
    parts: list[str] = field(default_factory=list)
    before: set[str] = field(default_factory=set)
    """Lines that edits show to have been there before"""

    @property
    def text(self) -> str:
        return "\n".join(self.parts if self.whole else map(dedent, self.parts))[:MAX_FILE]

    def apply(self, c: Change) -> None:
        """An edit of it."""
        new = c.new or ""
        if not self.whole:
            self.before.update(x.strip() for x in c.old.split("\n"))
        if c.way == "add":
            self.parts.append(new)
        elif c.lines is not None and self.whole:
            rows = "\n".join(self.parts).split("\n")
            rows[max(0, c.lines[0] - 1) : c.lines[1]] = new.split("\n") if new else []
            self.parts = ["\n".join(rows)]
        elif c.old and any(c.old in p for p in self.parts):
            # sed goes on through the file, an editor changes one place
            self.parts = [p.replace(c.old, new, -1 if c.shell else 1) for p in self.parts]
        elif c.new is not None and not self.whole:
            self.parts.append(new)
        self.parts = self.parts[-MAX_FILES:]


def edited_files(turns: Sequence[Turn]) -> dict[str, EditedFile]:
    """Path -> file, in the order of their last edit; at most MAX_FILES, the last ones."""
    found: dict[str, EditedFile] = {}
    opened = ""
    for action in with_written_calls(actions_of(turns), texts_before_actions(turns))[:MAX_ACTIONS]:
        if action.ok is False:
            continue
        if m := _OPENS.match(normal_form(action, 300)):
            opened = m[1]
        for c in changes(action.name, action.text):
            _change(found, c, opened if c.path == OPENED else c.path)
    return {p: f for p, f in found.items() if f.text.strip()}


def _change(found: dict[str, EditedFile], c: Change, path: str) -> None:
    if c.way == "restore":
        for p in [p for p in found if path in (".", "*") or same_file(p, path)]:
            del found[p]
    if not path or "\0" in path or c.source.startswith("\0") or c.way in ("folder", "restore"):
        return
    key = next((p for p in found if same_file(p, path)), cleaned(path))
    file = found.pop(key, None)
    if c.way == "remove":
        return
    if c.way == "write":
        source = next((f for p, f in found.items() if c.source and same_file(p, c.source)), None)
        if c.new is not None or source is not None:
            found[key] = EditedFile(True, [source.text if source else (c.new or "")[:MAX_FILE]])
        return
    file = file or EditedFile(False)
    file.apply(c)
    found[key] = file
    if len(found) > MAX_FILES:
        del found[next(iter(found))]
