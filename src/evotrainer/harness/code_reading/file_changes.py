"""The normal form of what an action does to files, whatever tool or program does it.

A shell command, an editor's call, a patch and a Python program all become `Change`s: which file, in which way, which
text went and which came. Who wrote the file before is no matter here (`tampering.py`).
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from evotrainer.harness.code_reading import shell
from evotrainer.harness.code_reading.actions import Action, is_shell, normal_form
from evotrainer.harness.code_reading.rule import walk

Way = Literal["write", "add", "change", "remove", "folder", "restore"]
"""write: a whole file, new or old; add: lines are only added; change: in place; remove: deleted or moved away; folder:
a folder that was not there is made with all that is in it; restore: put back as the repository has it."""
OPENED = "\0opened"
"""Path of a change by an editor that works on the file it has open."""
_PATH = r"[\w@+./~$*{}-]+"
_SECTION = re.compile(rf"^\*\*\* (Update|Add|Delete) File: ({_PATH})[ \t]*$|^\*\*\* Move to: ({_PATH})", re.MULTILINE)
_PLAIN = re.compile(r"^(?=--- [^\n]*\n\+\+\+ [^\n]*\n@@ )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """One file that an action changes."""

    path: str
    way: Way
    old: str = ""
    """What goes, where that is known; a piece of it for a substitution"""
    new: str | None = None
    """What comes, None where that is unknown"""
    line: str = ""
    """The command or call, about as it was written"""
    source: str = ""
    """File that it is a copy of"""
    lines: tuple[int, int] | None = None
    """Lines that go, where only their numbers are known"""
    last: bool = True
    """It is the last thing the action does, so that its outcome is the action's"""
    shell: bool = False
    """A shell did it, which goes on after a failure"""


def short(text: str) -> str:
    """The beginning of a text in one line, for a quote."""
    return " ".join(text[:1000].split())[:120]


def patched(text: str, line: str) -> Iterator[Change]:
    """Of a patch, unified or in the form with `*** Update File`: what goes and what comes, file by file."""
    marks = list(_SECTION.finditer(text))
    line = short(line)
    for i, m in enumerate(marks):
        body = text[m.end() : marks[i + 1].start() if i + 1 < len(marks) else len(text)]
        if m[3]:
            if i:
                yield Change(marks[i - 1][2] or "", "remove", line=line)
        elif m[1] == "Delete":
            yield Change(m[2], "remove", line=line)
        elif m[1] == "Add":
            yield Change(m[2], "write", new=_side(body, "+"), line=line)
        else:
            yield _two_sides(m[2], body, line)
    if not marks:
        for _, part in file_parts(text):
            yield from _of_diff(part, line)


def file_parts(patch: str) -> Iterator[tuple[int, str]]:
    """(lines before it, text) of each file's part of a unified diff, with or without headers of git."""
    at = 0
    # git's header starts a file; a plain diff has none and is split where `---`, `+++` and `@@` lines follow
    for n, part in enumerate(f"\n{patch}".split("\ndiff --git ")):
        for one in [p for p in _PLAIN.split(part[1:]) if p] if n == 0 else [part]:
            yield at, one
            at += one.count("\n")
        at += 1 if n or part else 0


def _of_diff(part: str, line: str) -> Iterator[Change]:
    before, after = re.search(r"(?m)^--- ([^\t\n]+)", part), re.search(r"(?m)^\+\+\+ ([^\t\n]+)", part)
    if not before or not after:
        return
    old, new = before[1].strip().removeprefix("a/"), after[1].strip().removeprefix("b/")
    if new == "/dev/null":
        yield Change(old, "remove", line=line)
    elif old == "/dev/null":
        yield Change(new, "write", new=_side(part[after.end() :], "+"), line=line)
    else:
        yield _two_sides(new, part[after.end() :], line)


def _two_sides(path: str, body: str, line: str) -> Change:
    old, new = _side(body, "-"), _side(body, "+")
    return Change(path, "change" if old.strip() else "add", old, new, f"{line} {path}: {short(old)} -> {short(new)}")


def _side(body: str, sign: str) -> str:
    return "\n".join(ln[1:] for ln in body.split("\n") if ln[:1] == sign)


Done = tuple[str, Literal["write", "add", "change", "shell"], str, str | None]
"""(path, way, what goes, what comes); of way `shell` the path is the command, also of what moves, copies, makes
and removes."""
MAX_PROGRAM = 20_000
_TOUCHES = re.compile(
    r"open\(|Path|write|remove|unlink|rmtree|rename|replace|move|copy|system|subprocess|mkdir|makedirs|os\."
)
_IN_SHELL = {
    "remove": "rm", "unlink": "rm", "rmtree": "rm", "rmdir": "rm", "rename": "mv", "renames": "mv", "move": "mv",
    "copy": "cp", "copyfile": "cp", "copy2": "cp", "mkdir": "mkdir", "makedirs": "mkdir",
}  # fmt: skip
_RUNS = frozenset({"system", "run", "call", "check_call", "check_output", "Popen", "popen", "getoutput"})


def python_changes(code: str) -> list[Done]:
    """In order; none of what cannot be parsed. Never raises."""
    code = code[:MAX_PROGRAM]
    if not _TOUCHES.search(code):
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        return list(_Program(tree).done())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class _Program:
    """Names that stand for paths and texts, and what is done to them."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = walk(tree)
        self.names: dict[str, list[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._bind(node.targets[0], [node.value])
            elif isinstance(node, ast.For):
                listed = isinstance(node.iter, ast.List | ast.Tuple)
                # of a call: over the names that a pattern finds
                self._bind(node.target, node.iter.elts[:32] if listed else getattr(node.iter, "args", [])[:1])  # type: ignore[attr-defined]
        self.calls = [(_called(n), n) for n in nodes if isinstance(n, ast.Call)]
        self.read = {p for name, c in self.calls for p in self._reads(name, c)}
        pairs = [map(self.text, c.args[:2]) for name, c in self.calls if name in ("replace", "sub") and len(c.args) > 1]
        self.swaps = [s for old, new in pairs for s in zip(old, new, strict=False)]
        written = [self.text(c.args[0]) for name, c in self.calls if name == "write" and c.args]
        self.said = written[0][0] if len(written) == 1 and written[0] else None
        """What is written, where the program writes one text only"""

    def _bind(self, target: ast.expr, values: Sequence[ast.expr]) -> None:
        if isinstance(target, ast.Name):
            known = self.names.setdefault(target.id, [])
            known += [t for v in values for t in self.text(v) if t not in known][: 32 - len(known)]

    def text(self, node: ast.AST, depth: int = 0) -> list[str]:
        """Texts that an expression may stand for; unknown parts of it as `*`, none where it is unknown."""
        if depth > 6:
            return []
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.Name):
            return self.names.get(node.id, [])
        if isinstance(node, ast.JoinedStr):
            return ["".join(v.value if isinstance(v, ast.Constant) else "*" for v in node.values)]  # type: ignore[misc]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            left, right = (self.text(x, depth + 1) or ["*"] for x in (node.left, node.right))
            mark = "/" if isinstance(node.op, ast.Div) else ""
            return [f"{a}{mark}{b}" for a in left[:4] for b in right[:4]] if (left, right) != (["*"], ["*"]) else []
        if isinstance(node, ast.Call) and node.args:
            if _called(node) in ("Path", "PurePath", "abspath", "expanduser", "str", "glob", "iglob"):
                return self.text(node.args[0], depth + 1)
            if _called(node) == "join":
                return ["/".join((self.text(a, depth + 1) or ["*"])[0] for a in node.args)]
        return []

    def _reads(self, name: str, call: ast.Call) -> list[str]:
        if name == "open" and call.args and _mode(call) == "r":
            return self.text(call.args[0])
        if name in ("read_text", "readlines", "FileInput", "input") and isinstance(call.func, ast.Attribute):
            return self.text(call.func.value) or [t for a in call.args[:1] for t in self.text(a)]
        return []

    def done(self) -> Iterator[Done]:
        """What the program does, call by call."""
        for name, call in self.calls:
            own = self.text(call.func.value) if isinstance(call.func, ast.Attribute) else []
            first, second = [*map(self.text, call.args[:2]), list[str](), list[str]()][:2]
            if name == "open" and first and _mode(call) != "r":
                yield from self._written(first, _mode(call), self.said)
            elif name in ("write_text", "write_bytes") and own:
                yield from self._written(own, "w", first[0] if first else None)
            elif name in _IN_SHELL:
                one = 1 if _IN_SHELL[name] in ("mv", "cp") else None
                paths = [p for some in (own, first, second) for p in some[:one]]
                yield " ".join([_IN_SHELL[name], *(f"'{p}'" for p in paths if "'" not in p)]), "shell", "", None
            elif name in _RUNS and call.args:
                words = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else []
                listed = " ".join("'" + (self.text(x) or ["*"])[0].replace("'", "") + "'" for x in words)
                yield from ((t, "shell", "", None) for t in ([listed] if listed else first[:1]))

    def _written(self, paths: list[str], mode: str, text: str | None) -> Iterator[Done]:
        for p in paths:
            if mode == "a":
                yield p, "add", "", text
            elif p not in self.read:
                yield p, "write", "", text if text is not None else self.said
            else:
                swaps: list[tuple[str, str | None]] = [*self.swaps[:16]]
                yield from ((p, "change", a, b) for a, b in swaps or [("", text)])


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _mode(call: ast.Call) -> str:
    """First letter of an `open`'s mode."""
    given = list(call.args[1:2]) + [k.value for k in call.keywords if k.arg == "mode"]
    mode = str(given[0].value) if given and isinstance(given[0], ast.Constant) else "r"
    return next((m for m in "awx" if m in mode), "r")


_PATHS = ("path", "file_path", "filePath", "filepath", "file", "filename", "file_name", "target_file", "relative_path",
          "relative_workspace_path", "TargetFile", "target")  # fmt: skip
_OLD = ("old_str", "old_string", "oldString", "old_text", "oldText", "search", "old", "find", "target_content")
_NEW = ("new_str", "new_string", "newString", "new_text", "newText", "replace", "new", "replacement", "insert_text")
_WHOLE = ("file_text", "content", "contents", "text", "code_edit", "new_content", "data", "body")
_PATCHES = ("patch", "input", "patchText", "patch_text", "diff", "unified_diff")
_VERBS: Mapping[str, Way] = {
    "create": "write", "write": "write", "overwrite": "write", "str_replace": "change", "replace": "change",
    "insert": "add", "append": "add", "a": "add", "delete": "remove", "remove": "remove", "edit": "change",
    "update": "change", "w": "write", "rename": "remove", "move": "remove",
}  # fmt: skip
_READS = frozenset({"view", "read", "undo_edit", "open", "list", "search", "find", "grep", "cat", "info"})
_EDITS = re.compile(
    r"edit|write|replace|insert|create|patch|delete|remove|append|update_file|save|move_file|rename", re.IGNORECASE
)
_EDITORS = frozenset({"str_replace_editor", "str_replace_based_edit_tool", "edit_anthropic", "file_editor", "editor"})
_WINDOW = re.compile(r"\s*(\d+):(\d+)\s*\n(.*?)(?:\nend_of_edit|\Z)", re.DOTALL)
_INTERPRETERS = re.compile(r"^(?:python|ipython|pypy)[\d.]*$")
_PATCHERS = ("apply_patch", "applypatch")
_SIMPLE: Mapping[str, Way] = {
    "rm": "remove", "unlink": "remove", "shred": "remove", "rmdir": "remove", "touch": "add", "mkdir": "folder",
}  # fmt: skip
_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*+/)"
_STREAM = re.compile(
    rf"[\s;%]*(?P<from>{_ADDRESS})?(?:,(?P<to>{_ADDRESS}))?\s*(?:s(?P<d>[^\w\s\\])"
    r"(?P<old>(?:\\.|(?!(?P=d)).)*+)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*+)(?P=d)\w*"
    r"|(?P<text>[aicr])\s*\\?\n?(?P<rest>.*)|(?P<verb>[dpq]))",
    re.DOTALL,
)
MOST_EDITS = 64
_LINE_EDITORS = ("ex", "vi", "vim", "ed")


@lru_cache(maxsize=2048)
def changes(name: str, text: str) -> tuple[Change, ...]:
    """Everything that an action changes, by its text alone."""
    if name.lower() in _EDITORS and not text.lstrip().startswith("{") and not text.startswith(name):
        text = f"{name} {text}"
    value = _arguments(text)
    found: list[Change] = []
    if value is not None and not is_shell(name):
        found = list(_of_call(name, value))
    if not found:
        if re.search(r"python|jupyter|interpreter", name, re.IGNORECASE) and (value is None or "code" in value):
            code = str(value.get("code", "")) if value else text
            found = [replace(c, shell=True) for c in _of_python(code)]
        else:
            found = list(_of_text(normal_form(Action(name, text, None), shell.MAX_SCRIPT)))
    return tuple(dict.fromkeys(found))


def _arguments(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((value[k] for k in keys if isinstance(value.get(k), str)), None)


def _of_call(name: str, value: Mapping[str, Any]) -> Iterator[Change]:
    """Of an editor's call with named arguments."""
    patch = _first(value, _PATCHES)
    if patch is not None and ("*** " in patch or "+++ " in patch):
        yield from patched(patch, f"{name} {patch}")
        return
    path = _first(value, _PATHS)
    verb = str(value.get("command") or value.get("mode") or value.get("operation") or value.get("action") or "").lower()
    if path is None or verb in _READS or not (_EDITS.search(name) or verb in _VERBS):
        return
    path = path.strip()
    edits = value.get("edits")
    for one in edits if isinstance(edits, list) else [value]:
        if isinstance(one, Mapping):
            yield _edit(name.lower(), verb, path, one)


def _edit(name: str, verb: str, path: str, value: Mapping[str, Any]) -> Change:
    old, new, whole = _first(value, _OLD), _first(value, _NEW), _first(value, _WHOLE)
    line = f"{name} {verb} {path}".replace("  ", " ")
    if old is not None and new is not None:
        return Change(path, "change" if old else "add", old, new, f"{line}: {short(old)} -> {short(new)}")
    way = _VERBS.get(verb)
    if way is None:
        way = "remove" if re.search(r"delete|remove", name) else "add" if re.search(r"insert|append", name) else None
    if way is None:
        way = "write" if re.search(r"write|create|save", name) else "remove" if "move" in name else "change"
    if way == "remove":
        return Change(path, way, line=line)
    text = new if new is not None else whole
    numbers = [value.get(k) for k in ("start_line", "end_line")]
    lines = (int(numbers[0]), int(numbers[1])) if all(type(n) is int for n in numbers) else None  # type: ignore[arg-type]
    return Change(path, way, old or "", text, f"{line}: {short(text or '')}", lines=lines)


def _of_text(text: str) -> Iterator[Change]:
    """Of a shell command or a plain edit command."""
    word = text.split(None, 1)[0] if text.strip() else ""
    if word in ("edit", "insert", "append", "write", "overwrite", "create", "str_replace", "delete", "remove"):
        yield from _plain_edit(word, text[len(word) :])
        return
    if word in _PATCHERS and "<<" not in text[:200]:
        yield from patched(text, text)
        return
    before: shell.SimpleCommand | None = None
    for one in shell.commands(text):
        if one.piped and before is not None and one.given is None:
            one = replace(one, given=_printed(before))
        for c in (*_redirected(one), *_of_command(one, before)):
            # a here-document is quoted with what it writes
            quote = f"{one.line}: {short(c.new)}" if c.new and "<<" in one.line else one.line
            yield replace(c, path=_at(one, c.path), source=_at(one, c.source), line=c.line or quote, last=one.last,
                          shell=True)  # fmt: skip
        before = one


def _printed(one: shell.SimpleCommand) -> str | None:
    """What a command prints, where that can be told from it."""
    if one.name in ("echo", "printf"):
        text = " ".join(w for w in one.words[1:] if not re.fullmatch(r"-[neE]+", w))
        return text.replace("\\n", "\n").replace("\\t", "\t")
    if one.name in (":", "true", ""):
        return one.given or ""
    return one.given if one.name in ("cat", "tee") else None


def _plain_edit(word: str, rest: str) -> Iterator[Change]:
    """`edit PATH LINE TEXT`, `create PATH`, and SWE-agent's `edit FROM:TO` of the file that is open."""
    line = short(word + rest)
    if m := _WINDOW.match(rest):
        yield Change(OPENED, "change", new=m[3], line=line, lines=(int(m[1]), int(m[2])))
        return
    parts = list(next(iter(shell.commands("x " + rest)), shell.SimpleCommand()).words[1:])
    way: Way = _VERBS.get(word, "change")
    if parts and re.fullmatch(_PATH, parts[0]) and re.search(r"[./]", parts[0]):
        numbered = len(parts) > 1 and parts[1].isdecimal()
        text = " ".join(parts[2:] if numbered else parts[1:])
        lines = (int(parts[1]), int(parts[1])) if numbered and way == "change" else None
        yield Change(parts[0], way, new=text if way != "remove" else None, line=line, lines=lines)
    elif word in ("edit", "str_replace") and len(parts) > 1:
        yield Change(OPENED, "change", parts[0], parts[1], line)


def _redirected(one: shell.SimpleCommand) -> Iterator[Change]:
    for path, more in one.writes:
        if path and not path.startswith("/dev/"):
            yield Change(path, "add" if more else "write", new=_printed(one))


def _of_command(one: shell.SimpleCommand, before: shell.SimpleCommand | None) -> Iterator[Change]:
    name, words, names = one.name, one.words, _names(one.words)
    if name == "git" and len(words) > 2:
        yield from _of_git(replace(one, words=[w for w in words[1:] if w != "--no-pager"]), before)
    elif name in ("mv", "cp", "install", "ln", "rsync"):
        yield from _moved(name, names)
    elif name in ("sed", "gsed", "perl", "ruby", "awk", "gawk", "ex", "vi", "vim", "ed"):
        yield from stream_edits(one)
    elif name in ("find", "xargs"):
        yield from _found(one, before)
    elif name == "patch" or name in _PATCHERS:
        yield from _of_patch_command(one)
    elif _INTERPRETERS.match(name):
        yield from _of_interpreter(one)
    elif name in _EDITORS and len(words) > 2:
        yield from _editor(words)
    elif name == "tee":
        yield from (Change(p, "add" if {"-a", "--append"} & {*words} else "write", new=one.given) for p in names)
    elif name == "truncate" or (name == "chmod" and re.search(r"\b0?000\b|-[rwx]*[rx]", " ".join(words[1:2]))):
        yield from (Change(p, "write" if name == "truncate" else "remove", new="") for p in names[-1:])
    elif name in _SIMPLE:
        yield from (Change(p, _SIMPLE[name], new="" if name == "touch" else None) for p in names)


def _of_git(one: shell.SimpleCommand, before: shell.SimpleCommand | None) -> Iterator[Change]:
    verb, words = one.words[0], one.words
    names = [w for w in _names(words) if not re.search(r"[~^]", w)]
    if verb in ("rm", "mv") and "--cached" not in words:  # that is out of the index only
        yield from _of_command(one, before)
    elif verb == "apply":
        yield from _of_patch_command(one)
    elif verb in ("checkout", "restore") and not any(re.search(r"@\{|origin/", w) for w in words):
        older = any(re.search(r"[~^]", w) for w in words)
        paths = words[words.index("--") + 1 :] if "--" in words else names
        yield from (Change(p, "write" if older else "restore") for p in paths)
    elif verb == "reset" and "--hard" in words:
        yield Change("*", "restore")
    elif verb in ("clone", "worktree"):
        yield from (Change(p, "folder") for p in names[1:])


def _names(words: Sequence[str]) -> list[str]:
    """Arguments that are no options."""
    return [w for w in words[1:] if not w.startswith("-") and w]


def _at(one: shell.SimpleCommand, path: str) -> str:
    """The path from where the command runs, as far as that is known."""
    if not one.folder or not path or path.startswith(("/", "~", "$", "*", "\0")):
        return path
    parts: list[str] = []
    for p in f"{one.folder}/{path}".split("/"):
        if p == ".." and parts and parts[-1] not in ("", ".."):
            parts.pop()
        elif p != ".":
            parts.append(p)
    return "/".join(parts)


def _moved(name: str, paths: Sequence[str]) -> Iterator[Change]:
    to = paths[-1] if len(paths) > 1 else ""
    into = len(paths) > 2 or to.endswith(("/", "/.")) or to in (".", "..")
    for p in paths[:-1]:
        if name == "mv":
            yield Change(p, "remove")
        base = p.rstrip("/").rsplit("/", 1)[-1]
        yield Change(f"{to.rstrip('/')}/{base}" if into else to, "write", source=p)


def _found(one: shell.SimpleCommand, before: shell.SimpleCommand | None) -> Iterator[Change]:
    """`find ... -delete`, `find ... -exec rm`, `find ... | xargs rm`."""
    find = before if one.name == "xargs" and before is not None else one
    words = [w for w in one.words if w != "{}"]
    if find.name == "find" and ("-delete" in words or {"rm", "unlink", "shred"} & {*words}):
        name = next((b for a, b in itertools.pairwise(find.words) if a in ("-name", "-iname", "-path")), "*")
        where = next((f"{w.rstrip('/')}/" for w in find.words[1:2] if not w.startswith(("-", "."))), "")
        if "cache" not in where + name and name != "*.pyc":
            yield Change(f"{where}{name}", "remove")


def _of_patch_command(one: shell.SimpleCommand) -> Iterator[Change]:
    # a file of commands or a patch that another action wrote: `tampering.py` knows what is in it
    names = [*one.reads, *(w for w in _names(one.words) if w.endswith((".patch", ".diff")))]
    text = one.given or (one.words[-1] if len(one.words) > 1 and one.name in _PATCHERS else "")
    yield from patched(text, one.line) if text else (Change(p, "change", source="\0patch") for p in names[:1])


def _of_interpreter(one: shell.SimpleCommand) -> Iterator[Change]:
    for w, code in itertools.pairwise([*one.words[1:], ""]):
        if w == "-c":
            yield from _of_python(code, one.line)
            return
        if w == "-m" or (not w.startswith("-") and w):
            if w.endswith(".py"):
                yield Change(w, "change", source="\0run")
            return
    yield from _of_python(one.given or "", "")


def _of_python(code: str, line: str = "") -> Iterator[Change]:
    for path, way, old, new in python_changes(code):
        if way == "shell":
            yield from _of_text(path)
        else:
            row = next((x for x in code.split("\n") if path in x), code)
            yield Change(path, way, old, new, line or short(row))


def program_changes(code: str) -> list[Change]:
    """What a Python file changes when it is run."""
    return list(_of_python(code))


def _editor(words: Sequence[str]) -> Iterator[Change]:
    """`str_replace_editor str_replace PATH --old_str A --new_str B`; the tool's name may stand there twice."""
    rest = list(itertools.dropwhile(lambda w: w == words[0], words))
    given = {a[2:]: b for a, b in itertools.pairwise(rest) if a.startswith("--")}
    plain = [w for i, w in enumerate(rest) if not w.startswith("--") and (i == 0 or not rest[i - 1].startswith("--"))]
    if len(plain) > 1:
        yield from _of_call(words[0], {"command": plain[0], "path": plain[1], **given})


def stream_edits(one: shell.SimpleCommand) -> Iterator[Change]:
    """What a command changes in place."""
    editor = one.name in _LINE_EDITORS
    options = [w for w in one.words[1:] if re.match(r"-\w|--\w", w)]
    given = [w for w in one.words[1:] if w not in options and w not in ("-", "inplace") and w[:1] != "+"]
    scripts = [b for a, b in zip(one.words, one.words[1:], strict=False) if re.fullmatch(r"-\w*[ec]|--expression", a)]
    scripts += [w.partition("=")[2] for w in options if w.startswith("--expression=")] or (
        [] if scripts or editor else given[:1]
    )
    if editor or any(re.match(r"--in-place|-\w*i", w) for w in options):
        for path in (w for w in given if w not in scripts):
            for script in scripts:
                yield from _script(script, one, path)


def _script(script: str, one: shell.SimpleCommand, path: str) -> Iterator[Change]:
    """The edits of a script of sed, or of Perl and the editors where they are substitutions."""
    at, found = 0, 0
    while found < MOST_EDITS and (m := _STREAM.match(script, at)):
        at, found = m.end(), found + 1
        new = (m["rest"] or "").replace("\\n", "\n").replace("\\ ", " ")
        if m["d"]:
            yield Change(path, "change", _unescaped(m["old"]), _unescaped(m["new"]), one.line)
        elif m["verb"] == "d" or m["text"] == "c":
            start, end = m["from"] or "", m["to"] or m["from"] or ""
            numbers = start.isdecimal() and (end.isdecimal() or end == "$")
            lines = (int(start), int(end) if end.isdecimal() else 1 << 30) if numbers else None
            yield Change(path, "change", "" if numbers else _unescaped(start.strip("/")), new, one.line, lines=lines)
        elif m["text"]:
            inserted = (None, m["rest"].strip()) if m["text"] == "r" else (new, "")
            yield Change(path, "add", "", inserted[0], one.line, inserted[1])
    if not found and one.name not in ("sed", "gsed"):
        # a program that nobody reads here: its words tell
        yield Change(path, "change", script, "", one.line)


def _unescaped(pattern: str) -> str:
    """About the text that a pattern matches."""
    return re.sub(r"\\([^\w\n])", r"\1", pattern).replace("\\n", "\n").lstrip("^").removesuffix("$")
