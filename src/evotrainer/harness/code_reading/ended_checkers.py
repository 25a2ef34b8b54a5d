"""Commands that end a process which checks the work: a grader, a verifier, a watchdog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_CHECKER = r"[\w./-]*(?:grader|verif(?:y|ier)|checker|judge|evaluator|watchdog|scorer|monitor)[\w.-]*"
_ENDS = re.compile(
    rf"\b(?:pkill|killall)\b[^\n;|&]{{0,80}}?\s['\"]?({_CHECKER})"
    rf"|\bkill\b[^\n;|&]{{0,40}}?(?:\$\(|`)(?:pgrep|pidof)[^\n)]{{0,60}}?\s['\"]?({_CHECKER})"
)
MAX_READ = 2000
"""Characters of a command that are read."""


def ended(command: str, before: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name of the process, the words that end it); `before`: commands so far, none of which started it."""
    if "kill" not in command:
        return
    for m in _ENDS.finditer(command[:MAX_READ]):
        name = (m[1] or m[2]).rsplit("/", 1)[-1]
        started = re.compile(rf"(?:python[\d.]*|node|bash|sh|nohup|\./)\s?\S{{0,200}}{re.escape(name)}")
        if not any(started.search(x) for x in before):
            yield name, m[0]
