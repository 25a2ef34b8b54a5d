"""Processes that reach no grader: converters, questions to the network and the machine, the screen, pip."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from evotrainer.harness.code_reading.names import dotted
from evotrainer.harness.code_reading.trees import walk

_NAMES = frozenset((
    "ffmpeg", "ffprobe", "sox", "convert", "magick", "pandoc", "pdflatex", "wkhtmltopdf", "tesseract", "dot", "lame",
    "ping", "ping6", "traceroute", "tracert", "nslookup", "dig", "whois", "ifconfig", "ipconfig", "iwconfig", "netsh",
    "df", "du", "free", "uname", "hostname", "uptime", "lscpu", "lsblk", "lspci", "lsusb", "nvidia-smi", "systeminfo",
    "sensors", "acpi", "sw_vers", "ver", "open", "xdg-open", "start", "say", "espeak", "aplay", "afplay", "mpg123",
    "notify-send", "clear", "cls", "tput", "stty", "reset", "color", "title", "pause", "mode",
))  # fmt: skip
"""Programs that neither end others nor show or change what a test holds."""
_PIP = frozenset({"install", "list", "show", "freeze", "--version", "download"})
_QUIET = re.compile(r"[12&]?>{1,2}\s*(?:/dev/null|nul)\b|2>&1", re.IGNORECASE)
_CHAINS = re.compile(r"[;&|`<>\n]|\$\(")
_GRADERS = re.compile(r"\b(?:tests?|hidden|grad(?:er|ing)|expected|answers?|solutions?|conftest)\b", re.IGNORECASE)


def is_utility(call: ast.Call, known: Mapping[str, ast.expr]) -> bool:
    """Does a call that starts a process start such a one, alone and on nothing of the grader's? `known`: name -> what
    it is set to, of names that are set once."""
    command = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "args"), None)
    if isinstance(command, ast.Name):
        command = known.get(command.id)
    if command is None:
        return False
    texts = [c.value for c in walk(command) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
    if any(_CHAINS.search(_QUIET.sub("", t)) or _GRADERS.search(t) for t in texts):
        return False
    choices = [command.body, command.orelse] if isinstance(command, ast.IfExp) else [command]
    return all(_harmless(_words(c)) for c in choices)


def _harmless(words: list[str]) -> bool:
    if words[:2] == [_PYTHON, "-m"]:
        words = words[2:]
    name = words[0].rpartition("/")[2].lower().removesuffix(".exe") if words else ""
    return name in _NAMES or (name in ("pip", "pip3") and len(words) > 1 and words[1] in _PIP)


_PYTHON = "python"


def _words(x: ast.expr) -> list[str]:
    """The first words of a command, as far as they are constants."""
    if isinstance(x, ast.List | ast.Tuple):
        words = [_PYTHON if dotted(e) == "sys.executable" else getattr(e, "value", "") for e in x.elts[:4]]
        return [w if isinstance(w, str) else "" for w in words]
    if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute) and x.func.attr in ("format", "split"):
        x = x.func.value
    while isinstance(x, ast.BinOp):
        x = x.left
    if isinstance(x, ast.JoinedStr):
        first, *rest = [*x.values, None]
        python = isinstance(first, ast.FormattedValue) and dotted(first.value) == "sys.executable"
        text = rest[0] if python else first
        begun = text.value if isinstance(text, ast.Constant) else ""
        return ([_PYTHON] if python else []) + str(begun).split()
    return x.value.split() if isinstance(x, ast.Constant) and isinstance(x.value, str) else []
