"""The normal form of what an action does to files, whatever tool or program does it.

A shell command, an editor's call, a patch and a Python program all become `Change`s: which file, in which way, which
text went and which came. Who wrote the file before is no matter here (`tampering.py`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from evotrainer.harness.code_reading import shell
from evotrainer.harness.code_reading.actions import Action, is_shell, normal_form
from evotrainer.harness.code_reading.change import OPENED, Change, Way, patched, short
from evotrainer.harness.code_reading.python_files import python_changes

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
_PATH = r"[\w@+./~$*{}-]+"
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
    if path is None and name.lower() in ("edit", "str_replace", "insert", "append"):
        path = OPENED
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
    elif parts and way == "add":
        yield Change(OPENED, way, new=parts[0], line=line)


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
    if one.given and editor:
        scripts.append(one.given)
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
