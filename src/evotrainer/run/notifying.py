"""Messages about a run to people who are not watching it (docs/notify.md); their room is imported when a task file
names an address or a command."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.registry import Registry

if TYPE_CHECKING:
    from evotrainer.config.task import NotifyConfig
    from evotrainer.run.observer import Observer

NOTIFIERS: Registry[Any] = Registry("notifier", "[notify]", {"notify": "evotrainer.extras.notify:NOTIFY"})


def check_notify(section: NotifyConfig) -> list[str]:
    """Notes; ConfigError where what it names cannot be sent to."""
    return NOTIFIERS["notify"].check(section) if section.asked else []


def notifying(folder: Path, section: NotifyConfig, view: Observer, seen: int) -> contextlib.AbstractContextManager[Any]:
    """The observer to run under; `seen`: events that the ledger holds already."""
    return NOTIFIERS["notify"].notifying(folder, section, view, seen) if section.asked else contextlib.nullcontext(view)
