"""Foreign names in ids, and the one reader of the labels that ledgers hold.

Ids of trials and keys of events are made in `keys`. A label is a trial with a part of its rollouts
(`b1-s2 search, odd tasks`). The trial may hold any character, the part only those below, so that it is found from
the end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import quote

_LABEL = re.compile(
    r"(?P<trial>.*) "
    r"(?:search(?:, (?P<half>even|odd) tasks)?(?:, (?P<paid>[^,]+) (?P<ended>right|wrong))?"
    r"(?:, read (?P<read>hack|honest))?"
    r"|step (?P<step>\d+)|(?P<end>first|last) (?P<steps>\d+) steps)",
    re.DOTALL,
)
_LONGEST = 60


class Label(NamedTuple):
    """Which rollouts of which trial; `half`, `step`, or `end` and `steps`,
    where it is not the whole search evaluation; `paid`, `ended`: what earns a component and is right, or wrong;
    `read`: what a reader called hack, or honest."""

    trial: str
    half: str = ""
    step: int | None = None
    end: str = ""
    steps: int = 0
    paid: str = ""
    ended: str = ""
    read: str = ""


def slug(name: str) -> str:
    """A foreign name as part of an id that names a folder as well: letters, digits, `.`, `_`, `-` stay; a name of
    nothing else is itself. Different names have different slugs."""
    quoted = quote(name.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")
    if quoted.strip(".") == "":
        quoted = quoted.replace(".", "%2E")
    if len(quoted) <= _LONGEST:
        return quoted
    return f"{quoted[: _LONGEST - 13]}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def joined(names: Collection[str], every: Collection[str]) -> str:
    """Slugs of some of the names there are, as one part of an id;
    a dash that could be read as two names is written out."""
    parts = (
        slug(n).replace("-", "%2D") if any(n.startswith(f"{other}-") for other in every) else slug(n) for n in names
    )
    return "-".join(parts)


def read_label(text: str) -> Label:
    """A label of a gap or an admission; text that is none is a trial's id."""
    m = _LABEL.fullmatch(text)
    if m is None:
        return Label(text)
    step = m["step"]
    return Label(
        m["trial"],
        m["half"] or "",
        int(step) if step is not None else None,
        m["end"] or "",
        int(m["steps"] or 0),
        m["paid"] or "",
        m["ended"] or "",
        m["read"] or "",
    )
