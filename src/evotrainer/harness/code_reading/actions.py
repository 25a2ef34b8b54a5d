"""Actions of an agent as commands: what was called, and whether it edits, tests or looks around."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Literal, NamedTuple

from evotrainer.harness.text import MAX_TEXT
from evotrainer.records.rollout import ToolCall, Turn, turn_text

ActionKind = Literal["edit", "test", "search", "other"]
MAX_COMMAND = 4000

_PATTERN_SHELLS = frozenset(
    {"", "bash", "sh", "shell", "terminal", "execute_bash", "run", "execute", "computer", "ipython"}
)
_SHELLS = frozenset({"", "sh", "run", "execute", "computer", "ipython"})
_SHELL_NAME = re.compile(r"(?:^|_)(?:bash|shell|terminal|exec|commands?|cmd)(?:_|$)", re.IGNORECASE)
_SHELL_KEYS = ("command", "cmd", "keystrokes", "commands", "script", "code", "input")
_EDIT_NAME = re.compile(r"edit|write|str_replace|insert|create|apply|patch|replace|delete|remove", re.IGNORECASE)
_SEARCH_NAME = re.compile(r"search|find|grep|list|^ls|view|read|open|glob|scroll|goto", re.IGNORECASE)
_TEST_NAME = re.compile(r"test", re.IGNORECASE)
_TEST = re.compile(
    r"(?:^|[\s;&|/])(?:pytest|py\.test|tox|nox|unittest|nosetests|run_?tests?)\b|\b(?:make|npm|cargo|go) test\b"
    r"|^test(?:$|\s+[\w./]+$)|\bmanage\.py test\b|\bpython[\d.]*\s+(?:-\w\s+)*[\w./-]*(?:test|repro)[\w-]*\.py\b"
)
_EDIT = re.compile(
    r"^(?:edit|write|create|insert|append|str_replace|apply_patch)\b|\bsed\s+-\w*i|\b(?:tee|patch)\s|\bgit apply\b"
    r"|(?<![<>=2&-])>{1,2}\s*[\w./~-]+"
)
_SEARCH = re.compile(
    r"^(?:ls|cat|grep|egrep|rg|ag|find|head|tail|less|more|tree|pwd|wc|nl|which|file|stat|git\s+(?:log|show|grep"
    r"|status|diff|blame)|sed\s+-n|awk)\b"
)
_PREFIX = re.compile(
    r"^(?:cd\s+[^\s;&|]+\s*(?:&&|;)\s*|export\s[^;&]*(?:&&|;)\s*|[A-Z_]+=\S*\s+|(?:sudo|time|timeout\s+\S+)\s+)+"
)
_COMMAND_LINE = re.compile(r"[a-z_./~(\[][\w./-]*(?:\s|$)")


class Action(NamedTuple):
    """One action of an agent: a tool call, or an assistant turn's text where no calls are recorded."""

    name: str
    text: str
    ok: bool | None

    @property
    def command(self) -> str:
        """Name and arguments as one line, for patterns."""
        return f"{self.name} {self.text}".strip() if self.name else self.text


def actions_of(turns: Sequence[Turn]) -> list[Action]:
    """What a rollout of these turns did, in order; empty for a single answer without tool calls."""
    # recorded calls are what was done; the text around them is reasoning, and would double every action
    calls = [Action(str(c.name), str(c.arguments), c.ok) for t in turns for c in t.tool_calls]
    if calls:
        return calls
    texts = [turn_text(t) for t in turns if t.role == "assistant"]
    return [Action("", s[:MAX_TEXT].strip(), None) for s in texts] if len(texts) > 1 else []


def command(action: Action) -> str:
    """Name and arguments as one text, JSON arguments flattened: what mined patterns look at, and so the same in every
    version."""
    # cut before and after: JSON escapes shrink when they are read, but nothing hostile is parsed at any length
    text = action.text[: 4 * MAX_COMMAND].strip()
    if text.startswith("{"):
        text = _flatten(text, False)
    if text.startswith("$ "):
        text = text[2:]
    text = text[:MAX_COMMAND]
    return text if action.name.lower() in _PATTERN_SHELLS else f"{action.name} {text}".strip()


@lru_cache(maxsize=1024)
def is_shell(name: str) -> bool:
    """Is this the name of a tool that runs shell commands?"""
    return name.lower() in _SHELLS or _SHELL_NAME.search(name) is not None


def normal_form(action: Action, limit: int = MAX_COMMAND) -> str:
    """The one form of an action: the shell command that it runs, or the tool's name, once, with its arguments."""
    return _normal(action.name, action.text, limit)


@lru_cache(maxsize=4096)
def _normal(name: str, text: str, limit: int) -> str:
    text, shell = text[: 4 * limit].strip(), is_shell(name)
    if text.startswith("{"):
        text = _flatten(text, shell)
    if text.startswith("$ "):
        text = text[2:]
    # some formats keep a tool's name and, as its arguments, the whole line with the name once more or twice
    while name and text.startswith(f"{name} {name} "):
        text = text[len(name) + 1 :]
    text = text[:limit]
    if shell or text == name or text.startswith(f"{name} "):
        return text
    return f"{name} {text}".strip()


def _flatten(text: str, shell: bool) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return text
    if shell and (given := next((value[k] for k in _SHELL_KEYS if k in value), None)) is not None:
        return _one_line(given)
    return " ".join(v if isinstance(v, str) else json.dumps(v) for v in value.values())


def _one_line(given: object) -> str:
    """A command given as text, as a list of words, or as a list of keystrokes."""
    if not isinstance(given, list):
        return given if isinstance(given, str) else json.dumps(given)
    listed = [w for w in given if isinstance(w, str | dict)]
    words = [w if isinstance(w, str) else _one_line(w.get("keystrokes", "")) for w in listed]
    # `["bash", "-lc", "ls"]`
    if len(words) > 2 and words[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and words[1].endswith("c"):
        return words[2]
    return " ".join(words)


_TAGGED = re.compile(
    r"<function=(?P<tool>[\w-]+)>(?P<call>.*?)(?:</function>|\Z)|<execute_bash>(?P<bash>.*?)(?:</execute_bash>|\Z)"
    r"|<execute_ipython>(?P<python>.*?)(?:</execute_ipython>|\Z)",
    re.DOTALL,
)
_PARAMETER = re.compile(r"<parameter=(\w+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_SHELL_FENCE = re.compile(
    r"^```(?:mswea_bash_command|bash|sh|shell|console)[ \t]*\n(.*?)\n```", re.DOTALL | re.MULTILINE
)


def with_written_calls(actions: Sequence[Action], texts: Sequence[str]) -> list[Action]:
    """The same actions, those written as text as the calls that they are.

    A tagged call, or the one shell block of a turn, is what an agent without recorded calls does. Words about commands
    do nothing, and neither does a block where the replies are all alike: nobody ran it.
    texts: as `texts_before_actions`."""
    ran = len({s.strip() for s in texts[1:] if s.strip()}) > 1
    return [_done(a, ran) if not a.name and not a.text.startswith("{") else a for a in actions]


_LIKE_CALLS = re.compile(
    r"<tool_call>|<function_calls?>|<invoke\b|<function=|<execute_\w+>|\[TOOL_CALLS?\]|<\|python_tag\|>"
    r"|^\W{0,4}Action(?: Input)?\W{0,3}:|^```mswea_bash_command\b"
    r"|[\"'](?:tool_calls?|tool_name|function_call|functionCall|toolUse|tool)[\"']\s*:",
    re.MULTILINE,
)
_LIKE_COMMANDS = re.compile(r"^```(?:bash|sh|shell|console)\b|[\"'](?:cmd|command)[\"']\s*:", re.MULTILINE)
"""Also of chats about commands."""
_LIKE_OUTPUT = re.compile(
    r"^[ \t]*(?:[<\[]?/?(?:output|observation|stdout|stderr|tool_response|function_results?|returncode"
    r"|exit.?code)[^\w\n]{0,9}[:>\]=]"
    r"|Traceback |\$ |total \d)"
    r"|^(?:[\w./-]*/[\w.-]+|[\w-]+\.(?:py|[jt]s|c|go|rs|java|txt|md|json|ya?ml|toml|cfg))[ \t]*$"
    r"|no such file|command not found|permission denied|no tests ran|\b\d+ (?:passed|failed)\b|^\w*Error: "
    r"|^={5,} [^=\n]* ={5,}[ \t]*$"
    # not a heading: `Class 3: shells`, `Import settings`
    r"|^(?-i:(?:def|class) \w+[(:]|import \w[\w.]*[ \t]*$|from [\w.]+ import )",
    re.MULTILINE | re.IGNORECASE,
)


def unread_calls(actions: Sequence[Action], texts: Sequence[str]) -> bool:
    """Does an agent's text look like calls of which none can be read? texts: as `texts_before_actions`."""
    like = [bool(_LIKE_CALLS.search(a.text)) for a in actions]
    talk = [bool(_LIKE_COMMANDS.search(a.text)) for a in actions]
    if any(a.name for a in actions) or not any(like + talk):
        return False
    if any(talk):
        replies = [s[:MAX_COMMAND] for s in texts[1:]]
        # one word in the place of every output, as some logs keep, is no talk
        answered = (len(replies) > 1 and len(set(replies)) == 1) or any(map(_LIKE_OUTPUT.search, replies))
        like = [x or (answered and t) for x, t in zip(like, talk, strict=True)]
    done = with_written_calls(actions, texts)
    return not any(d.name for d in done) and any(x and not d.text for x, d in zip(like, done, strict=True))


def _done(a: Action, ran: bool) -> Action:
    if _is_command(a.text):
        return a
    if m := _TAGGED.search(a.text):
        if m["tool"]:
            return Action(m["tool"], json.dumps(dict(_PARAMETER.findall(m["call"]))), a.ok)
        return Action("bash", m["bash"], a.ok) if m["bash"] is not None else Action("python", m["python"], a.ok)
    blocks = _SHELL_FENCE.findall(a.text) if ran and "```" in a.text else []
    return Action("bash", blocks[0], a.ok) if len(blocks) == 1 else Action("", "", a.ok)


def kind_of(action: Action) -> ActionKind:
    """Class of an action, by tool name first, by command otherwise."""
    name = action.name.lower()
    # in this order, as names overlap: `create_test` counts as a test, `replace_in_open_file` as an edit
    if not is_shell(name):
        if _TEST_NAME.search(name):
            return "test"
        if _EDIT_NAME.search(name):
            return "edit"
        if _SEARCH_NAME.search(name):
            return "search"
    text = normal_form(action)
    if prefix := _PREFIX.match(text):
        text = text[prefix.end() :]
    if not action.name and not _is_command(text):
        return "other"
    if _TEST.search(text):
        return "test"
    if _EDIT.search(text):
        return "edit"
    return "search" if _SEARCH.search(text) else "other"


def _is_command(text: str) -> bool:
    """Is a turn's text a command, not an answer in words or a program? Its first line tells."""
    first, _, rest = text.partition("\n")
    # agents without recorded calls answer in words, in programs or in commands, and only the last are actions
    if "```" in text or not _COMMAND_LINE.match(first) or first.rstrip().endswith((".", ":", ",", "?")):
        return False
    return len(first) <= MAX_COMMAND and (not rest or "<<" in first or rest.count("\n") < 40)


_ANSWERING = re.compile(
    r"(?:^|[|;&\n]\s*|\bxargs\s+|-m\s+)(?:(?:e?grep|rg|diff|cmp|pgrep|test|pylint|flake8|mypy|pyright|ruff|pyflakes"
    r"|py(?:code|doc)style|bandit|eslint|tsc|\w+lint|shellcheck|rubocop|golangci-lint|(?:black|isort)\s+--check\S*|go\s+vet"
    r"|cargo\s+(?:check|clippy)|git\s+diff\s+--(?:exit-code|check)|sphinx-build\s[^|;&\n]*\blinkcheck)\b|\[)[^|;&\n]*$"
)
"""Searches, comparisons and checkers: their exit code says what they found."""
_BROKEN = re.compile(
    r"no such file|not found|unmatched|invalid|unrecogni[sz]ed|denied|usage:|is a directory|terminated|timed out",
    re.IGNORECASE,
)
_NO_TESTS = re.compile(
    r"(?:command|directory) not found|no module named ['\"]?(?:pytest|unittest|tox|nose)|no such file or|can't open"
    r"|usage:|unrecognized arguments|INTERNALERROR|collected 0 items|no tests ran|(?:Syntax|Indentation|Import)Error"
    r"|ModuleNotFoundError|errors? during collection",
    re.IGNORECASE,
)


def outputs(turns: Sequence[Turn], at: int) -> list[str | None]:
    """What each call of turn `at` printed: of the j-th call the j-th tool turn after it, None where there is none.

    A reply that is no tool turn (an environment that speaks as the user) belongs to the first call.
    """
    count = len(turns[at].tool_calls)
    after = list(takewhile(lambda t: t.role != "assistant", turns[at + 1 :]))
    replies = [t for t in after if t.role == "tool"] or after[:1]
    texts: list[str | None] = [turn_text(t) for t in replies[:count]]
    return texts + [None] * (count - len(texts))


def call_failed(call: ToolCall, printed: str | None) -> bool | None:
    """Did a call that reports failure fail as a call? Tests that ran and failed and searches that found nothing did
    their work; what was printed tells. None where it would tell and nothing is recorded."""
    action = Action(str(call.name), str(call.arguments), False)
    test = kind_of(action) == "test"
    # exit code 1 of grep, a checker or a failing test suite is an answer; of most other programs it is a failure
    if not test and not _ANSWERING.search(normal_form(action)):
        return True
    if printed is None:
        return None
    return (test and not printed.strip()) or (_NO_TESTS if test else _BROKEN).search(printed[:2000]) is not None


def call_outcome(call: ToolCall, printed: str | None) -> int:
    """1 a call that worked, 0 one that failed, -1 unknown."""
    if call.ok is None or call.ok:
        return -1 if call.ok is None else 1
    bad = call_failed(call, printed)
    return -1 if bad is None else int(not bad)


def texts_before_actions(turns: Sequence[Turn]) -> list[str]:
    """For each action of these turns, the text between the one before it and itself; for the first one the task. After
    them what follows the last one, where anything does."""
    out: list[str] = []
    texts: list[str] = []
    calls = any(t.tool_calls for t in turns)
    for t in turns:
        if t.role == "assistant":
            n = len(t.tool_calls) if calls else 1
            out += ["\n".join(texts)] * min(n, 1) + [""] * (n - 1)
            texts = texts if n == 0 else []
        else:
            texts.append(turn_text(t))
    return [*out, "\n".join(texts)] if texts else out
