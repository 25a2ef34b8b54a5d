"""What a git command looks at that may hold the answer: commits of others, older states, somebody's stash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from evotrainer.harness.code_reading import shell

Kind = Literal["foreign", "older", "stash", "web", "file", "release"]

ELSEWHERE = re.compile(
    r"--all\b|--remotes|--branches|\borigin[/ ]|\bupstream[/ ]|\bremotes/|FETCH_HEAD|ORIG_HEAD|HEAD@\{|\brefs/(?!stash)"
    r"|\.\.+origin"
)
_OLDER = re.compile(r"\bHEAD(?:[~^]|\.\.)|\.\.HEAD\b|@[~^]|--source[= ](?!(?:HEAD|@)(?:\s|$))|\b[0-9a-f]{7,40}\b")
TAG = re.compile(r"(?:^|[\s.])(v?\d+(?:\.\d+)+(?:[-.]?(?:rc|a|b|beta|post)\.?\d+)?)(?=\.\.|:|\s|$)")
"""Of versions, where a command names a revision"""
HASH = re.compile(r"\b[0-9a-f]{7,40}\b")
SEARCH = frozenset({"grep", "egrep", "rg", "ag", "awk", "sed", "fzf"})
_TITLES = re.compile(
    r"--(?:all|oneline|graph|decorate|no-pager|branches|remotes|no-merges|abbrev-commit|max-count=\d+|date=\w+"
    r"|(?:pretty=)?format=[^bBN]*|pretty=oneline)|-n|-?\d+|-n\d+|origin/\w+"
)
"""Words of a log that prints a title a commit."""
_LOGS = frozenset({"log", "whatchanged", "reflog", "rev-list"})
_SHOWS = frozenset({"show", "cat-file", "checkout", "restore", "diff", "difftool", "reset"})


_NAMES = re.compile(
    r"-(?:s$|-no-patch|-stat|-shortstat|-numstat|-dirstat|-summary|-compact-summary|-name-|-quiet|-raw)"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing that an action looks at and that may hold the answer."""

    kind: Kind
    what: str
    """The command or file"""
    hashes: tuple[str, ...] = ()
    line: str = ""
    """The command that reads a file"""


def git_words(one: shell.Simple) -> list[str]:
    """Words of a git command from its verb on, none of another one."""
    rest = list(one.words[1:]) if one.name == "git" else []
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in ("-C", "-c") else rest[1:]
    return rest


def of_git(one: shell.Simple, searched: bool) -> Iterator[Reading]:
    """Readings of one git command; `searched`: the command that reads what it prints looks for something in it."""
    rest = git_words(one)
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
    elif verb in _SHOWS and not (verb in ("show", "diff", "difftool") and _names_only(rest)):
        shown = verb == "cat-file" or (verb == "show" and not re.search(r"\bHEAD:", line))
        kind = "foreign" if ELSEWHERE.search(line) else "older" if hashes or shown or _OLDER.search(line) else None
    if kind:
        yield Reading(kind, line, hashes)


def _names_only(words: Sequence[str]) -> bool:
    """Does it print which files changed, or a title, and nothing of what is in them?"""
    return any(_NAMES.match(w) for w in words) and not any(re.match(r"-(?:p$|u$|-patch)", w) for w in words)
