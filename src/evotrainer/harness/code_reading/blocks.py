"""What an answer hands in: its fenced blocks and its pseudo-files, thoughts and chat tokens apart.

Models deliver files in many dresses: a fence with a name in its first line or above it, `<file path="x.py">`, a pair
of `<path>` and `<content>`, notebook magic, a here-document in a shell block. Each becomes a `Block`. Positions are
found by one pass of each pattern over the text; no pattern can go back over more than a line.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from textwrap import dedent
from typing import NamedTuple

from evotrainer.harness.code_reading.shell import commands

MAX_ANSWER = 400_000
"""Characters of an answer that are read, from its end: what is handed in stands there."""
MAX_BLOCKS = 64
MAX_STRINGS = 64
"""Fences within lines of one block that are skipped as a string's; a fence behind them ends it."""

_THOUGHTS = r"think|thinking|thoughts?|reasoning|scratchpad|analysis"
_THOUGHT = re.compile(rf"<({_THOUGHTS})>|</({_THOUGHTS})>|(\[THINK\]|◁think▷)|(\[/THINK\]|◁/think▷)", re.IGNORECASE)
_ALOUD = ("think", "thought", "reasoning>", "scratchpad>", "analysis>")
"""Of which each tag of thoughts holds one."""
_FINAL = "<|channel|>final"
_MESSAGE = "<|message|>"
_TOKEN = re.compile(
    r"<\|[\w ./-]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|<(?:eos|bos|pad|(?:end|start)_of_turn)>(?:model\n)?|\[/?INST\]"
    r"|^\s*<s>|</s>\s*$"
)
_WRAPPING = re.compile(
    r"^[ \t]*</?(?:answer|final_answer|final|solution|code|python|program|response|output)>[ \t]*$", re.MULTILINE
)
_BOXED = re.compile(
    r"\\boxed\{(?:\\text\w*\{)?\s*(?:def|class|import|from|return|if|for|while|print|#include|public|func\w*|fn|let)\b"
)
_BOXES = re.compile(r"\}{1,2}\s*(?=\\boxed\{)|\}{1,2}\s*\Z|\\boxed\{(?:\\text\w*\{)?")
"""Of a program that a task wants in TeX's boxes, each line in one of its own or its line ends spelled out."""
_OPENS = re.compile(
    r"(?P<fence>`{3,}|~{3,})(?P<info>[^\n`]{0,200})(?:\n|\Z)"
    r"|<(?P<tag>\w[\w.-]{0,40})\s(?P<attributes>[^<>\n]{1,300})(?:>|\Z)"
    r"|<(?P<path>path|file_?path|file_?name)>\s{0,4}(?P<said>[^<>\n]{1,200}?)\s{0,4}</(?P=path)>\s{0,8}"
    r"<(?P<holds>contents?|code|file_text|new_str)>"
    r"|<parameter=(?:path|file_?path|file_?name)>\s{0,4}(?P<given>[^<>\n]{1,200}?)\s{0,4}</parameter>\s{0,8}"
    r"<parameter=(?P<with>contents?|code|file_text|new_str)>"
)
_FILE_TAG = re.compile(
    r"^(?P<fence>(?!))?<(?P<tag>file|[\w.-]{0,20}file[\w.-]{0,20}|artifact)\s(?P<attributes>[^<>\n]{1,300})(?:>|\Z)",
    re.MULTILINE,
)
_NAMED = re.compile(r"\b(?:file_?)?(?:path|name)\s{0,2}=\s{0,2}[\"']?([^\"'<>\s=]{1,200})", re.IGNORECASE)
_FILE = r"[\w@+./-]{0,150}?[\w-]\.(?:py|pyi|ini|cfg|toml|pth|sh|json|txt|md|c|h|cc|cpp|rs|go|js|ts|java|ya?ml)"
_IN_INFO = re.compile(rf"(?:^|[\s:=\"'(])({_FILE})(?=$|[\s\"')}}])")
_NAME_LINE = re.compile(
    r"^[\s#*=>_~`/;%\d.)-]{0,12}(?:(?:new |create )?(?:(?:write)?file(?:\s?name)?|path)\s?:?[\s*`]{0,4}(?:-a\s+)?)?"
    rf"[`*_\"']{{0,4}}({_FILE})[`*_\"']{{0,4}}(?:\s{{0,4}}[-=*:(–].*|\s*)$",
    re.IGNORECASE,
)
"""A heading above a block, a comment in its first line, a notebook's magic."""
PYTHON = frozenset(
    {"python", "py", "python3", "py3", "python2", "ipython", "ipython3", "pyi", "tool_code", "pytest", "jupyter"}
)
_SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "terminal"})


class Block(NamedTuple):
    """One thing that an answer hands in."""

    name: str
    """The file's name, empty where it has none."""
    language: str
    """As the fence says, in lower case; `python` for files that end so; empty where nothing is said."""
    text: str

    @property
    def python(self) -> bool:
        """Does it say that it is Python?"""
        return self.language in PYTHON


@lru_cache(maxsize=256)
def blocks(text: str) -> tuple[Block, ...]:
    """The blocks of an answer in order, at most the last MAX_BLOCKS; an answer without fences and files is one block.

    Where all that is fenced says to be of other languages or names no program, what stands around is a block, too.
    """
    text = answer(text)
    if "```" not in text and "~~~" not in text and "<" not in text:
        # the body of a function may be all that is answered
        return (Block("", "", dedent(text) if text[:1] in (" ", "\t") else text),)
    spans: list[tuple[re.Match[str], int, int]] = []
    around: list[str] = []
    at = begin = 0
    while m := _OPENS.search(text, at):
        end, at = _span(text, m)
        if end >= 0:
            spans.append((m, end, at))
            around.append(text[begin : m.start()])
            begin = at
    around.append(text[begin:])
    found = [b for m, end, _ in deque(spans, MAX_BLOCKS) for b in _parts(_block(text, m, end))]
    if not any(b.python or not (b.name or b.language) for b in found):
        rest = _WRAPPING.sub("", "".join(around))
        if rest.strip():
            found.append(Block("", "", rest))
    return tuple(found[-MAX_BLOCKS:])


def answer(text: str) -> str:
    """The text without thoughts that are closed and without the tokens of chat templates; its last MAX_ANSWER
    characters."""
    text = text[-MAX_ANSWER:].replace("\r\n", "\n")
    if _FINAL in text:
        text = text.rpartition(_FINAL)[2].removeprefix(_MESSAGE)
    text = _without_thoughts(text)
    if "<|" in text or "<｜" in text or "_of_turn>" in text or "s>" in text or "INST]" in text:
        text = _TOKEN.sub("", text)
    if "\\boxed{" in text and _BOXED.search(text):
        text = _BOXES.sub("\n", text).replace("\\n", "\n")
    return text


def _without_thoughts(text: str) -> str:
    """What is thought aloud and closed goes; what is never closed stays, as a grader that takes the last block takes
    it, too."""
    # most answers hold none; the words fold to lower case in other letters, too, where a text is not ASCII
    if text.isascii() and not any(map(text.lower().__contains__, _ALOUD)):
        return text
    kept: list[str] = []
    at = depth = begun = 0
    for m in _THOUGHT.finditer(text):
        if m[1] or m[3]:
            if not depth:
                begun = m.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                kept.append(text[at:begun])
                at = m.end()
        else:
            # closed and never opened: the template's prompt ends with the opening tag
            kept, at = [], m.end()
    return "".join([*kept, text[at:]])


def _parts(block: Block) -> Iterator[Block]:
    """The block without the pseudo-files that stand in it, and these; of shell commands the files they write, too."""
    text, at = block.text, 0
    for m in _FILE_TAG.finditer(text) if "<" in text else ():
        end, after = _span(text, m) if m.start() >= at else (-1, 0)
        if end >= 0:
            yield block._replace(text=text[at : m.start()])
            yield _block(text, m, end)
            at = after
    yield block._replace(text=text[at:])
    if block.language in _SHELL:
        yield from files_of_shell(text)


def _span(text: str, m: re.Match[str]) -> tuple[int, int]:
    """(where the block ends that begins here, where to go on); end -1 where none begins."""
    if m["fence"]:
        return _closed(text, m["fence"], m.end())
    if m["tag"]:
        if not _name_in_tag(m):
            return -1, m.end()
        end_tag = f"</{m['tag']}>"
    else:
        end_tag = "</parameter>" if m["given"] else f"</{m['holds']}>"
    close = text.find(end_tag, m.end())
    return (close, close + len(end_tag)) if close >= 0 else (len(text), len(text))


def _name_in_tag(m: re.Match[str]) -> str:
    """The file's name in a tag; a name without an ending is a form's field or a tool's, not a file."""
    name = _NAMED.search(m["attributes"])
    return name[1] if name is not None and "." in name[1].rsplit("/", 1)[-1] else ""


def _block(text: str, m: re.Match[str], end: int) -> Block:
    inside = text[m.end() : end]
    if inside[:1] in (" ", "\t"):
        # a block of a list is as far in as its text
        inside = dedent(inside)
    if m["fence"]:
        return _fenced(text, m, inside)
    return _file(_name_in_tag(m) if m["tag"] else (m["said"] or m["given"]).strip(), inside)


def _closed(text: str, fence: str, start: int) -> tuple[int, int]:
    """(where a fenced block ends, where to go on): at a fence that begins or ends its line; within a line it is a
    string's."""
    at = text.find(fence, start)
    strings = 0
    while at >= 0:
        strings += 1
        line = text.rfind("\n", start, at) + 1 or start
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        outside = not text[line:at].strip(" \t>") or not text[at:end].strip(fence[0] + " \t")
        if outside or strings > MAX_STRINGS:
            return at, at + len(fence)
        at = text.find(fence, at + len(fence))
    # an unclosed fence is a cut completion: what there is of the program still counts
    return len(text), len(text)


def _fenced(text: str, m: re.Match[str], inside: str) -> Block:
    info = m["info"].strip()
    language = re.match(r"[{.]{0,2}([\w+#-]*)", info)[1].lower()  # type: ignore[index]
    name = _IN_INFO.search(info)
    first, _, rest = inside.lstrip("\n").partition("\n")
    above = text[max(0, m.start() - 400) : m.start()].rstrip().rpartition("\n")[2]
    comment = (
        name or (_NAME_LINE.match(first) if first.lstrip()[:1] in tuple("#/;%") else None) or _NAME_LINE.match(above)
    )
    if comment is None:
        return Block("", language, inside)
    inside = rest if first.lstrip().startswith("%%") else inside
    block = _file(comment[1], inside)
    # `conftest.py` as the fence's whole info is a name; beside a language it says both
    return block if not language or block.python or name else Block(block.name, language, inside)


def _file(name: str, inside: str) -> Block:
    """A file; a fence that is all around its content is no part of it."""
    body = inside.strip("\n")
    if (m := _OPENS.match(body)) and m["fence"]:
        end, _ = _closed(body, m["fence"], m.end())
        body = body[m.end() : end]
    ending = name.rpartition(".")[2].lower()
    return Block(name.strip(), "python" if ending in {"py", "pyi"} else ending, body)


def files_of_shell(text: str) -> Iterator[Block]:
    """Files that here-documents of shell commands write."""
    for one in commands(text) if "<<" in text else ():
        if one.given is not None and one.name in ("cat", "tee"):
            named = [path for path, _ in one.writes] + [w for w in one.words[1:] if not w.startswith("-")]
            yield from (_file(path, one.given) for path in named[:1])
