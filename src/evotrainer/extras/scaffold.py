"""A policy's scaffold in the folder that it is exported to: `scaffold.json`, and the system prompt in its template.

Who serves the folder through its chat template gets the system prompt of the certified policy where a conversation
brings none of its own. The other texts stand around tasks and tools, which only whoever asks can write: the file and
the model card tell them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evotrainer.records.durable import os_errors
from evotrainer.records.recipe import Recipe
from evotrainer.records.scaffold import Slot
from evotrainer.records.written import content_name

FILE, TEMPLATE = "scaffold.json", "chat_template.jinja"
SYSTEM = "system"
"""Slot whose text a chat template can put in."""


def write_scaffold(folder: Path, recipe: Recipe | None, slots: Sequence[Slot]) -> None:
    """The texts of a recipe with their hashes and what each is for; nothing where it has none of its own."""
    if recipe is None or not recipe.scaffold:
        return
    served = [SYSTEM] if SYSTEM in recipe.scaffold and with_system(folder, recipe.scaffold[SYSTEM]) else []
    about = {s.name: s.about for s in slots}
    settings: dict[str, Any] = {
        "served": served,
        "texts": {
            k: {"text": v, "name": content_name(k, v), "about": about.get(k, "")} for k, v in recipe.scaffold.items()
        },
    }
    with os_errors(f"cannot write {folder / FILE}"):
        (folder / FILE).write_text(json.dumps(settings, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def with_system(folder: Path, text: str) -> bool:
    """Have the folder's chat template put in a system prompt where a conversation begins without one; False, and
    nothing changed, where the folder has no template file."""
    path = folder / TEMPLATE
    if not path.is_file():
        return False
    with os_errors(f"cannot write {path}"):
        path.write_text(preset(text) + path.read_text("utf-8"), "utf-8")
    return True


def preset(text: str) -> str:
    """What goes before a template, in Jinja: the messages with the system prompt in front."""
    return (
        "{%- if not messages or messages[0]['role'] != 'system' %}"
        f"{{%- set messages = [{{'role': 'system', 'content': {_literal(text)}}}] + messages %}}"
        "{%- endif %}"
    )


def _literal(text: str) -> str:
    """A text as a string of Jinja, which reads Python's escapes; no brace of it opens or closes a tag."""
    return '"' + "".join(c if c.isascii() and (c.isalnum() or c in " .,:;-") else _escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"
