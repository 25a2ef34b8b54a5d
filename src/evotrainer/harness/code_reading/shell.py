"""Shell commands taken apart: simple commands with their words, redirects, here-documents and folder.

No shell is imitated: variables stay as they are written, and what is quoted is one word. Time is in proportion to the
length of the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

MAX_SCRIPT = 1 << 16
"""Characters of a command that are read."""
MAX_LINE = 400
"""Characters of one that are kept for a quote."""
DEEP = 3
"""Shells within shells that are followed."""

_PIECE = re.compile(
    r"(?P<blank>(?:[ \t\r]|\\\n)+)|(?P<redirect>\d*(?:<<<|<<-?|>>|>\||>&|<&|<>|<|>)|&>>?)"
    r"|(?P<end>\n|&&|\|\||;;|[;|&()])|(?P<single>\$?'[^']*')|(?P<double>\$?\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<escape>\\.)|(?P<nested>\$\(|`)|(?P<plain>[^\s;|&()<>'\"\\`$]+)|(?P<other>.)",
    re.DOTALL,
)
_PREFIX = frozenset(
    {"sudo", "time", "nohup", "exec", "command", "builtin", "then", "do", "else", "if", "while", "until", "!", "{"}
)
_TAKES_VALUE = {"timeout": 1, "nice": 0, "env": 0, "stdbuf": 0, "xvfb-run": 0}
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})


@dataclass(slots=True)
class SimpleCommand:
    """One simple command."""

    words: list[str] = field(default_factory=list)
    """Without leading `sudo`, `timeout 5`, assignments and keywords"""
    writes: list[tuple[str, bool]] = field(default_factory=list)
    """(target of a redirect, appended)"""
    reads: list[str] = field(default_factory=list)
    """Targets of `<`"""
    given: str | None = None
    """Text of its here-document or here-string"""
    piped: bool = False
    """It reads what the one before it prints"""
    folder: str = ""
    """Where a `cd` before it in the same text went, "" where none did"""
    last: bool = False
    """Nothing follows: how the text ended is how this one ended"""
    line: str = ""
    """As it was written, from the beginning of its pipe"""

    @property
    def name(self) -> str:
        """Name of the program, without its folder."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""


@lru_cache(maxsize=1024)
def commands(text: str, depth: int = 0) -> tuple[SimpleCommand, ...]:
    """Simple commands in their order, those of shells within shells (`bash -c`, `$(...)`) among them."""
    found: list[SimpleCommand] = []
    folder = ""
    for one in _simple(text[:MAX_SCRIPT]):
        inner = _of_inner_shell(one)
        if inner is not None and depth < DEEP:
            found += (replace(x, last=False, folder=x.folder or folder) for x in commands(inner, depth + 1))
            continue
        one.folder = folder
        if one.name in ("cd", "pushd") and len(one.words) > 1:
            folder = one.words[1] if one.words[1].startswith(("/", "~")) or not folder else f"{folder}/{one.words[1]}"
        if one.words or one.writes:
            found.append(one)
        for w in one.words:
            if depth < DEEP and "$(" in w and w.count("(") < 9:
                inside = w[w.index("$(") + 2 : w.rfind(")") if ")" in w else len(w)]
                found += (replace(x, last=False) for x in commands(inside, depth + 1))
    if found:
        found[-1].last = True
    return tuple(found)


def _of_inner_shell(one: SimpleCommand) -> str | None:
    if one.name == "eval":
        return " ".join(one.words[1:])
    code = (b for a, b in pairwise(one.words) if re.fullmatch(r"-\w*c", a))
    return next(code, one.given if len(one.words) < 3 else None) if one.name in _SHELLS else None


class _Reader:
    """Words and redirects as they come."""

    def __init__(self) -> None:
        self.one = SimpleCommand()
        self.word: str | None = None
        self.redirect = ""
        self.pending: list[tuple[str, SimpleCommand]] = []

    def add(self, piece: str) -> None:
        self.word = piece if self.word is None else self.word + piece

    def finish_word(self) -> None:
        word, self.word = self.word, None
        how, self.redirect = self.redirect, "" if word is not None else self.redirect
        if word is None:
            return
        if not how:
            self.one.words.append(word)
        elif how.endswith(("<<", "<<-")):
            self.pending.append((word, self.one))
        elif how.endswith("<<<"):
            self.one.given = word
        elif how.endswith("<"):
            self.one.reads.append(word)
        elif ">" in how and not (how.endswith("&") and (word.isdecimal() or word == "-")):
            # what goes to the error stream alone is no file of interest, but it is written all the same
            self.one.writes.append((word, ">>" in how))

    def finish(self, piped: bool, line: str) -> SimpleCommand:
        self.finish_word()
        self.redirect = ""
        done, self.one = self.one, SimpleCommand(piped=piped)
        done.words, done.line = _bare(done.words), line.strip()
        return done


def _simple(text: str) -> Iterator[SimpleCommand]:
    at, start, r = 0, 0, _Reader()
    while m := _PIECE.match(text, at):
        kind, piece = m.lastgroup, m[0]
        at = m.end()
        if kind == "blank":
            r.finish_word()
        elif kind == "redirect":
            r.finish_word()
            r.redirect = piece
        elif kind == "end" or kind == "nested":
            if r.word is not None and piece == "(" and r.word.endswith("$"):
                r.word = r.word[:-1] or None
            if r.word is not None or r.one.words or r.one.writes or r.one.given:
                piped = piece in ("|", "|&")
                yield r.finish(piped, text[start : min(m.start(), start + MAX_LINE)])
                start = start if piped else at
            elif piece not in ("|", "|&"):
                start = at
            if piece == "\n" and r.pending:
                at = start = _documents(text, at, r.pending)
                r.pending = []
        elif kind == "single":
            r.add(piece[piece.index("'") + 1 : -1])
        elif kind == "double":
            r.add(re.sub(r"\\([\"\\$`\n])", r"\1", piece[piece.index('"') + 1 : -1]))
        elif kind == "escape":
            r.add(piece[1])
        elif piece[0] == "#" and r.word is None:
            at = text.find("\n", m.start())
            at = len(text) if at < 0 else at
        else:
            r.add(piece)
    yield r.finish(False, text[start : start + MAX_LINE])


def _documents(text: str, at: int, pending: list[tuple[str, SimpleCommand]]) -> int:
    """Read the here-documents that begin at `at`; the place after the last."""
    for word, one in pending:
        end = re.compile(rf"^[ \t]*{re.escape(word)}[ \t\r]*$", re.MULTILINE).search(text, at)
        # one without an end takes the rest, as in a shell
        one.given = text[at : end.start() if end else len(text)]
        at = min(len(text), end.end() + 1) if end else len(text)
    return at


def _bare(words: list[str]) -> list[str]:
    at = 0
    while at < len(words):
        w = words[at].rsplit("/", 1)[-1]
        if w in _PREFIX or _ASSIGNED.match(words[at]):
            at += 1
        elif w in _TAKES_VALUE and at + 1 < len(words):
            at += 1
            while at < len(words) and words[at].startswith("-"):
                at += 1
            at += _TAKES_VALUE[w]
        else:
            break
    return words[at:]
