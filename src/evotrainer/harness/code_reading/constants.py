"""What a program compares with constants, looks up in constants, and answers by constants: by tokens, in any language.

`if n == 5 and k == 3: return 8`, `case "a": ...`, `{(5, 3): 8, (7, 4): 1}[n, k]`, `8 if n == 5 else 0`, `when 48`,
`if (s == "hello") return 2;` all ask for constants and mostly answer by one. Nothing is parsed: programs that are cut
off, of Python 2 or of another language are read alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from evotrainer.harness.code_reading.blocks import PYTHON

_GAPS = re.compile(r"[\s\[\](){},'\":;]+")
_DECIMAL = re.compile(r"-?\d+\.\d*")


def tokens_in(text: str) -> list[str]:
    """What stands between blanks, brackets, quotes and commas: `[1, 'ab']` and `1 ab` have the same tokens."""
    return [_short(t) if "." in t else t for t in _GAPS.split(text) if t]


def _short(token: str) -> str:
    """A decimal without the zeros at its end: judges print `2.500000`."""
    return token.rstrip("0").removesuffix(".") if _DECIMAL.fullmatch(token) else token


MAX_TEXT = 60_000
MAX_UNITS = 2000
REACH = 4
"""Lines behind a condition in which its answer or an inner condition begins."""
Row = tuple[str, ...]
_LEXER = re.compile(
    r"[^\S\n]*(?:"
    r"(?P<word>(?![rbuRBU]{1,2}[\"'])[^\W\d]\w*[?!]?)|(?P<line>\n[ \t]*)"
    r"|(?P<number>(?:\d[\d_]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?[uUlLfF]{0,3}\b)"
    r"|(?P<note>/\*.*?(?:\*/|\Z)|\#[^\n]*|//[^\n]*)"
    r"|(?P<text>[rbuRBU]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\.)*?(?:'''|\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`\n]*`))"
    r"|(?P<sign>===|!==|==|!=|<=|>=|=>|->|:=|<<|::|&&|\|\||\*\*|//|[+*/%-]=|\S))",
    re.DOTALL,
)
_SPELLED = frozenset({"true", "false", "none", "null", "nil", "nullptr", "undefined"})
"""Words that are constants, in lower case."""
_MAKES = frozenset({
    "array", "asarray", "list", "tuple", "set", "frozenset", "str", "int", "float", "vector", "asList", "of", "List",
    "Set", "string", "String", "vec!", "Counter", "deque", "tensor", "pair", "make_pair", "Vec", "Array", "Fraction",
    "Decimal",
})  # fmt: skip
"""Calls whose value is their arguments'."""
_NO_NAMES = frozenset({"dict", "Dict", "Any", "bool"})
_EQUALS = frozenset({"==", "===", "!=", "!==", "is", "eq", "equals", "eql?", "equal?"})
ASKS = frozenset({
    "startswith", "endswith", "startsWith", "endsWith", "starts_with", "ends_with", "start_with?", "equals", "Equals",
    "equalsIgnoreCase", "includes", "include?", "contains", "index", "indexOf", "strcmp", "array_equal", "allclose",
    "isclose", "fullmatch", "eql?", "eq", "compare", "compareTo",
})  # fmt: skip
"""Functions and methods that hold their arguments against something."""
_TYPES = frozenset({".", "::", "<", ">", "[", "]", "&"})
_SIZES = frozenset({"len", "size", "length", "count", "strlen", "Length", "Count", "type", "ord"})
_BEGINS = frozenset({"if", "elif", "elsif", "when", "case", "unless", "while", "switch", "match"})
_SAYS = frozenset({
    "return", "=", ":=", "=>", "->", "then", "yield", "puts", "<<", "?", "print", "echo", "else", "and", "&&", "+=",
    "{", ":", ")",
})  # fmt: skip
_WRITES = frozenset(
    {"print", "write", "append", "add", "push", "push_back", "println", "printf", "log", "puts", "extend"}
)
_ENDS = frozenset({";", "}", ")", "if", "else", "%", "unless", ":", "end"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "**", "//", "<", ">", "<=", ">=", "^", "&", "|"})
_HASHES = PYTHON | {"ruby", "rb", "sh", "bash", "shell", "zsh", "r", "perl", "julia", "elixir", "yaml", "toml"}
"""Languages whose comments begin with #."""
_ASSERTS = re.compile(r"^[ \t]*assert\b[^\n]*", re.MULTILINE)


class Unit(NamedTuple):
    """What is asked for, and what is answered there."""

    asked: Row
    """Tokens of the constants that are compared with, all of which have to be met."""
    answer: Row | None
    """Tokens of a constant answer; None where it is computed."""
    line: int
    """In the program, from 1."""


class Item(NamedTuple):
    """A word, sign, line break, or constant of any depth."""

    kind: str
    text: str
    line: int
    tokens: Row = ()
    rows: tuple[tuple[Row, ...], ...] = ()
    """Of a bracketed constant each element, as the tokens of its own elements (one for a plain value)."""
    pairs: tuple[tuple[Row, Row], ...] = ()


class Constants(NamedTuple):
    """What a program does with constants."""

    units: tuple[Unit, ...]
    rows: tuple[tuple[Row, int], ...]
    """Constants that are answered, wherever: (tokens, line)."""
    digests: tuple[int, ...]
    """Lines on which something is held against what looks like a checksum, where one is computed."""


@lru_cache(maxsize=4096)
def constants(text: str, language: str = "") -> Constants:
    """The constants of a program; never raises."""
    items = _reduced(_lexed(text[-MAX_TEXT:], language))
    walk = _Walk(items)
    # what an assertion looks up is checked and not answered
    units = (*walk.units(), *_tables(items, _ASSERTS.sub("", text)))
    held = (u.line for u in units if _CHECKSUM.search(text) and len(u.asked) == 1 and _DIGEST.fullmatch(u.asked[0]))
    return Constants(units[:MAX_UNITS], tuple(walk.said), tuple(held))


def _lexed(text: str, language: str) -> Iterator[Item]:
    slashes = bool(language) and language not in _HASHES
    line, at, before = 1, 0, "line"
    while m := _LEXER.match(text, at):
        kind = m.lastgroup or ""
        literal, at = m[kind], m.end()
        if kind == "note":
            if literal[0] == "/" and not slashes:
                literal = literal[: 2 if literal[1] == "/" else 1]
                kind, at = "sign", m.start("note") + len(literal)
            else:
                line += literal.count("\n")
                continue
        if kind == "line":
            line += 1
            yield Item("line", literal[1:], line)
        elif kind == "text":
            body = _body(literal)
            # a text that is a statement of its own is a comment
            if not (before == "line" and literal.lstrip("rbuRBU")[:3] in ('"""', "'''")) and body is not None:
                value = tuple(t.lower() for t in tokens_in(body))
                yield Item("const", literal, line, value, ((value,),))
            line += literal.count("\n")
        elif kind == "number" or literal.lower() in _SPELLED:
            value = tuple(
                tokens_in(literal.lower().replace("_", "").rstrip("ul") if kind == "number" else literal.lower())
            )
            yield Item("const", literal, line, value, ((value,),))
        else:
            yield Item(kind, literal, line)
        before = kind


def _body(literal: str) -> str | None:
    """What a text says; None for one with values in it."""
    mark = literal[0].lower() if literal[0] not in "\"'`" else ""
    literal = literal.lstrip("rbuRBU")
    size = 3 if literal[:3] in ('"""', "'''") else 1
    body = literal[size:-size] if len(literal) > 2 * size else ""
    if "r" in mark:
        return body
    return body.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'")


def _reduced(items: Iterator[Item]) -> list[Item]:
    """Items with bracketed constants put together: `[1, (2, 3)]` is one; calls and indices keep their brackets."""
    levels: list[list[Item]] = [[]]
    opened: list[Item] = []
    for x in items:
        now = levels[-1]
        if x.kind == "sign" and x.text in "([{":
            levels.append([])
            opened.append(x)
        elif x.kind == "sign" and x.text in ")]}" and opened:
            inner, begin = levels.pop(), opened.pop()
            levels[-1] += _closed(begin, inner, x, levels[-1])
        elif x.kind == "const" and len(now) and now[-1].text == "-" and not _is_value(now[:-1]):
            value = tuple(f"-{t}" for t in x.tokens)
            now[-1] = x._replace(tokens=value, rows=((value,),))
        else:
            now.append(x)
    while opened:
        inner = levels.pop()
        levels[-1] += [opened.pop(), *inner]
    return levels[0]


def _is_value(before: Sequence[Item]) -> bool:
    """Does a value end here, so that a minus subtracts?"""
    last = before[-1] if before else None
    return last is not None and (
        last.kind == "const"
        or (last.kind == "word" and last.text not in _SAYS | _BEGINS | {"in"})
        or last.text in (")", "]")
    )


def _closed(begin: Item, inner: list[Item], end: Item, before: list[Item]) -> list[Item]:
    """What a bracket becomes: a constant, or what it was, with its brackets."""
    value = _constant(begin, inner)
    last = before[-1] if before else Item("line", "", 0)
    word = last.kind == "word" and last.text not in _SAYS | _BEGINS | {"in", "or", "not", "is"}
    if value is None:
        return [begin, *inner, end]
    if last.text in _MAKES or last.text == ">" or (last.text == "]" and begin.text == "{"):
        # np.array([1, 2]), std::vector<int>{1, 2}, new int[]{1, 2}
        while before and (before[-1].kind == "word" or before[-1].text in _TYPES) and before[-1].text not in _SAYS:
            before.pop()
        return [value]
    if word or last.text in (")", "]"):
        return [begin, *([value] if value.rows else ()), end] if begin.text != "{" else [begin, *inner, end]
    return [value]


def _constant(begin: Item, inner: list[Item]) -> Item | None:
    """A bracket of constants as one constant; None where anything else stands in it."""
    elements: list[Item] = []
    pairs: list[tuple[Row, Row]] = []
    part: list[Item] = []
    for x in (*(i for i in inner if i.kind != "line"), Item("sign", ",", 0)):
        if x.text != "," or x.kind != "sign":
            part.append(x)
            if len(part) > 3:
                return None
            continue
        if len(part) == 1 and part[0].kind == "const":
            elements.append(part[0])
        elif len(part) == 3 and part[0].kind == part[2].kind == "const" and part[1].text in (":", "=>"):
            inner_pairs = part[2].pairs or (((), part[2].tokens),)
            pairs += (((*part[0].tokens, *k), v) for k, v in inner_pairs)
            elements.append(part[0]._replace(rows=((part[0].tokens, part[2].tokens),)))
        elif part:
            return None
        part = []
    if begin.text == "(" and len(elements) == 1 and not pairs:
        return elements[0]
    tokens = tuple(t for e in elements for t in e.tokens)
    if pairs:
        tokens = tuple(t for p in pairs for side in p for t in side)
    rows = tuple(tuple(r for row in e.rows for r in row) for e in elements)
    return Item("const", begin.text, begin.line, tokens, rows, tuple(pairs))


class _Walk:
    """Conditions and their answers, in one pass over the items of a program."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.said: list[tuple[Row, int]] = []
        self._ways: list[Row] = []
        """Alternatives that are asked for since the last answer."""
        self._line = self._indent = 0
        self._after: Row | None = None
        """An answer that stands before its condition."""
        self._open = self._not = self._inner = False
        """Is a condition still being read, is it that something is not so, does another one without constants stand in
        it?"""

    def units(self) -> Iterator[Unit]:
        indent, skip = 0, False
        given = [i for i, x in enumerate(self.items[:-2]) if x.kind == "word" and self._at(i + 1).text in ("=", ":=")]
        once = Counter(self.items[i].text for i in given)
        named = {
            n: v for i in given for n, v in [(self.items[i].text, self.items[i + 2])] if once[n] == 1 and v.tokens[1:]
        }
        for i, x in enumerate(self.items):
            if x.kind == "line":
                indent, skip = len(x.text.expandtabs()), False
                if self._after is not None or (self._ways and x.line > self._line + REACH):
                    yield from self._flush(self._after)
            elif skip:
                continue
            elif x.kind == "word":
                skip = x.text in ("assert", "import")
                yield from self._word(i, x, indent)
            elif x.text in ("||",):
                self._open = False
            elif x.kind == "const":
                yield from self._const(i, x)
            if x.text in named and not skip and self._asked(i):
                self._ask(named[x.text], i, x.line)
        yield from self._flush(self._after)

    def _word(self, i: int, x: Item, indent: int) -> Iterator[Unit]:
        if x.text in _BEGINS:
            before = self._at(i - 1)
            if before.kind == "const" and self._is_answer(i - 1):
                yield from self._flush(None)
                self._after = before.tokens
            elif self._ways and (x.text != "if" or indent <= self._indent):
                yield from self._flush(None)
            self._inner = bool(self._ways)
            if not self._ways:
                self._indent = indent
            self._open = True
        elif x.text == "or":
            self._open = False
        elif x.text == "else":
            # `f(n) if n != 5 else 8`: what stands behind answers, too
            if self._ways and self._is_answer(i + 1):
                yield from (Unit(w, self._at(i + 1).tokens, self._line) for w in self._ways)
            yield from self._flush(self._after)
        elif x.text == "return" and self._ways and not self._is_answer(i + 1):
            yield from self._flush(None)

    def _const(self, i: int, x: Item) -> Iterator[Unit]:
        if self._asked(i):
            self._ask(x, i, x.line)
        elif self._is_answer(i):
            self.said.append((x.tokens, x.line))
            if self._ways and self._after is None:
                yield from self._flush(x.tokens)

    def _ask(self, x: Item, i: int, line: int) -> None:
        before = self._at(i - 1).text
        one_of = before == "in" and x.text[:1] in "([{"
        ways = [tuple(t for part in row for t in part) for row in x.rows[:64]] if one_of else [x.tokens]
        self._not |= before in ("!=", "!==") or (before == "in" and self._at(i - 2).text == "not")
        self._line, self._inner = line, False
        if self._ways and self._open:
            self._ways = [(*w, *v) for w in self._ways[:16] for v in ways]
        else:
            self._ways += ways
        self._open = True

    def _flush(self, answer: Row | None) -> Iterator[Unit]:
        # what is answered where something is not met belongs to no input
        yield from (Unit(w, None if self._not or self._inner else answer, self._line) for w in self._ways if w)
        self._ways, self._after = [], None
        self._open = self._not = self._inner = False

    def _at(self, i: int) -> Item:
        return self.items[i] if 0 <= i < len(self.items) else Item("line", "", 0)

    def _asked(self, i: int) -> bool:
        """Is the constant there held against something that is neither a size nor a call of constants?"""
        before, after = self._at(i - 1), self._at(i + 1)
        if before.text in _ARITHMETIC or after.text in _ARITHMETIC:
            return False
        if before.text in _EQUALS:
            return not self._sized(i - 2)
        if after.text in _EQUALS and before.kind != "const":
            return self._at(i + 2).text not in _SIZES and self._at(i + 4).kind != "const"
        if before.text == "in" or (before.text == "not" and self._at(i - 2).text == "is"):
            return (self._at(i).text in "([{" or self._at(i).kind == "word") and not self._walks(i)
        if after.text == "in" or (after.text == "not" and self._at(i + 2).text == "in"):
            return before.text != "for"
        if before.text in ("case", "when"):
            return True
        if before.text == "(" and self._at(i - 2).text in ASKS:
            return True
        # isclose(x, 5)
        return before.text == "," and after.text == ")" and any(self._at(i - k).text in ASKS for k in range(3, 10))

    def _sized(self, i: int) -> bool:
        """Is the value that ends at `i` a size, or a call of constants alone?"""
        x, depth, inside = self._at(i), 0, list[Item]()
        while i > 0 and (x.text == ")" or depth):
            depth += (x.text == ")") - (x.text == "(")
            inside.append(x)
            i, x = i - 1, self._at(i - 1)
        constant = all(y.kind == "const" or y.text in ("(", ",", ")") for y in inside or [x])
        return x.text in _SIZES or (constant and len(inside) != 2)

    def _walks(self, i: int) -> bool:
        """Is it what a loop walks through?"""
        for k in range(2, 10):
            x = self._at(i - k)
            if x.kind == "line":
                return False
            if x.text in ("for", "foreach"):
                return True
        return False

    def _is_answer(self, i: int) -> bool:
        """Is the constant there returned, printed, kept or given to a name, and nothing is done to it?"""
        x, before, after = self._at(i), self._at(i - 1), self._at(i + 1)
        if x.kind != "const" or not (
            after.kind == "line" or after.text in _ENDS or (after.text == "," and before.text == "(")
        ):
            return False
        if before.text == "(":
            return self._at(i - 2).text in _WRITES
        return before.kind == "line" or before.text in _SAYS


def _tables(items: list[Item], text: str) -> Iterator[Unit]:
    """Each row of the tables that a program looks something up in."""
    filled: dict[str, list[Unit]] = {}
    edge = [Item("line", "", 0)] * 3
    at = [*edge, *items, *edge]
    for i, x in enumerate(at):
        if x.kind == "const" and at[i - 1].text == "[" and at[i + 1].text == "]":
            # table[5, 3] = 8
            if at[i + 2].text == "=" and at[i + 3].kind == "const" and at[i - 2].kind == "word":
                filled.setdefault(at[i - 2].text, []).append(Unit(x.tokens, at[i + 3].tokens, x.line))
        elif len(x.rows) > 1 and x.text in "([{":
            if at[i - 1].text == "in" and at[i - 2].text != "not":
                # for given, answer in [(6, 70), (11, 5741)]:
                head, _, body = "\n".join(text.splitlines()[x.line - 1 :][:7]).partition(" in ")
                asked = "for" in head and not _checks(head.rpartition("for")[2], body)
            else:
                asked = at[i + 1].text in ("[", ".") or ((name := _name(at, i)) != "" and _looked_up(name, text))
            yield from _rows(x) if asked else ()
    for name, units in filled.items():
        if len(units) > 1 and _looked_up(name, text):
            yield from units


def _rows(x: Item) -> Iterator[Unit]:
    if x.pairs:
        yield from (Unit(k, v, x.line) for k, v in x.pairs if k)
        return
    for row in x.rows:
        if len(row) > 1:
            yield Unit(tuple(t for part in row[:-1] for t in part), row[-1], x.line)
        elif row:
            yield Unit(row[0], None, x.line)


def _name(items: list[Item], i: int) -> str:
    """The name that the constant there is given, also through a type or a call."""
    row = list(takewhile(lambda x: x.kind != "line", reversed(items[max(0, i - 20) : i])))
    to = next((k for k, x in enumerate(row) if x.text in ("=", ":=")), len(row))
    return next((x.text for x in row[to:] if x.kind == "word" and x.text not in _MAKES | _NO_NAMES), "")


def _looked_up(name: str, text: str) -> bool:
    """Is something looked up there? What a loop walks through to check the program is not."""
    n = re.escape(name)
    methods = "get|index|at|find|has|contains\\w*|fetch|key\\?|getOrDefault|indexOf|pop|__getitem__"
    asks = rf"\b{n}\s*(?:\[(?!\s*\])|(?:\.|::|->)(?:{methods})\b)"
    member = rf"^(?:(?!\bfor\b).)*\bin\s+(?:self\.)?{n}\b(?!\s*[.(\[])"
    if re.search(f"{asks}|{member}", text, re.MULTILINE):
        return True
    # for given, answer in table: if given == x: return answer
    walk = (
        rf"\bfor\b(?P<names>[^\n]{{1,80}}?)\b(?:in|of)\s+(?:\w+\()?(?:self\.)?{n}\b(?P<body>[^\n]*(?:\n[^\n]*){{0,6}})"
    )
    return any(not _checks(m["names"], m["body"]) for m in re.finditer(walk, text))


def _checks(names: str, body: str) -> bool:
    """Does a loop hold what a function gives for a case against what is wanted, or do nothing?"""
    calls = (m for m in _CALL.finditer(body) if m[1] not in _PLAIN)
    named = re.findall(r"\w+", names)
    return "==" not in body.replace("!=", "==") or any(set(named) & set(re.findall(r"\w+", m[2])) for m in calls)


_CALL = re.compile(r"\b(\w+)\(([^()\n]*)")
_PLAIN = _MAKES | _WRITES | {"len", "sorted", "print", "enumerate", "items", "zip", "range"}
_CHECKSUM = re.compile(r"\b(?:md5|sha\d+|sha3_\d+|blake2\w|crc32|adler32|hexdigest|hash|hashCode|std::hash\W.*)\s*\(")
_DIGEST = re.compile(r"(?=.*\d)[0-9a-f]{8,128}|-?\d{8,}")
