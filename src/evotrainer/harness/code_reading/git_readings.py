"""What a git command looks at that may hold the answer: commits of others, older states, somebody's stash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["foreign", "older", "stash", "web", "file", "release"]

ELSEWHERE = re.compile(
    r"--all\b|--remotes|--branches|\borigin[/ ]|\bupstream[/ ]|\bremotes/|FETCH_HEAD|ORIG_HEAD|HEAD@\{|\brefs/(?!stash)"
    r"|\.\.+origin"
)
_OLDER = re.compile(r"\bHEAD(?:[~^]|\.\.)|\.\.HEAD\b|@[~^]|--source|\b[0-9a-f]{7,40}\b")
HASH = re.compile(r"\b[0-9a-f]{7,40}\b")
SEARCH = frozenset({"grep", "egrep", "rg", "ag", "awk", "sed", "fzf"})
_TITLES = re.compile(
    r"--(?:all|oneline|graph|decorate|no-pager|branches|remotes|no-merges|abbrev-commit|max-count=\d+|date=\w+"
    r"|(?:pretty=)?format=[^bBN]*|pretty=oneline)|-n|-?\d+|-n\d+|origin/\w+"
)
"""Words of a log that prints a title a commit."""
_LOGS = frozenset({"log", "whatchanged", "reflog", "rev-list"})
_SHOWS = frozenset({"show", "cat-file", "checkout", "restore", "diff", "difftool", "reset"})


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing that an action looks at and that may hold the answer."""

    kind: Kind
    what: str
    """The command or file"""
    hashes: tuple[str, ...] = ()


def of_git(words: Sequence[str], searched: bool) -> Iterator[Reading]:
    """Readings of one git command; `searched`: the command that reads what it prints looks for something in it."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
    if not rest:
        return
    verb, line = rest[0], "git " + " ".join(rest)
    hashes = tuple(h for h in HASH.findall(line) if re.search(r"\d", h))
    kind: Kind | None = None
    if verb == "stash":
        kind = "stash" if rest[1:2] and rest[1] in ("pop", "apply", "show") else None
    elif verb in ("pull", "fsck", "unpack-objects"):
        kind = "foreign"
    elif verb in _LOGS:
        contents = verb in ("whatchanged", "reflog") or any(re.match(r"-(?:[puSGL]|-patch|-cc)", w) for w in rest)
        # titles alone give no answer away; who then shows a commit that is none of HEAD's is caught there
        titles = verb == "log" and all(_TITLES.fullmatch(w) for w in rest[1:]) and not searched
        counted = verb == "rev-list" and "--count" in rest
        if ELSEWHERE.search(line) and not (titles or counted):
            kind = "foreign" if contents or "--all" in rest else "older"
        elif contents:
            kind = "older"
    elif verb in ("merge", "cherry-pick", "rebase"):
        kind = None if {"--abort", "--continue", "--quit"} & {*rest} else "foreign"
    elif verb in _SHOWS and not (verb == "show" and any(w.startswith(("--stat", "--name")) for w in rest)):
        shown = verb == "cat-file" or (verb == "show" and not re.search(r"\bHEAD:", line))
        kind = "foreign" if ELSEWHERE.search(line) else "older" if hashes or shown or _OLDER.search(line) else None
    if kind:
        yield Reading(kind, line, hashes)
