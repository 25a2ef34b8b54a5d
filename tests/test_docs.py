"""The documents name what there is: files, modules, classes, functions, commands and options.

Names are looked up in the source (`ast`), not imported, so that this is fast and needs no optional library. After a
renaming it shows which page still has the old name.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import typer

from evotrainer.cli import app
from tests.import_graph import SRC, module_graph, modules, tree

pytestmark = pytest.mark.xdist_group("architecture")  # the source is read and parsed once
ROOT = SRC.parents[1]
PAGES = {
    str(p.relative_to(ROOT)): p
    for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
"""The CHANGELOG and the log of experiments are not among them: they tell of what was."""
each_page = pytest.mark.parametrize("page", PAGES)

TOP = ("src", "tests", "bench", "docs", "examples", "scripts", "tasks")
"""Folders of the repository whose files a page may name by their whole path."""
FOREIGN = {
    "AutoTokenizer",
    "GRPOTrainer",
    "HumanEval",
    "MbppEval",
    "OrderedDict",
    "approx",
    "get_reward",
    "solve",
    *dir(builtins),
}
"""Classes, functions and data sets of others: Python, pytest, TRL, transformers, a program that a policy writes."""
QUOTING = ("docs/domains/", "docs/pathologies.md", "docs/harness.md")
"""Pages that name files of the repositories that a policy works in: a bare `name.py` may be one of those."""
THEIRS = {"src/zoo/testing.py", "tests/test_core.py"}
"""The same in a folder that we have, too."""
OTHER_DOTS = {"evotrainer.rollout_schema", "evotrainer.json", "evotrainer.key"}
"""Begin like our package and are none of its names: a key of Arrow metadata, a file, a tracker's tag."""

# -- what a page says --------------------------------------------------------------------------------------------------


@cache
def blocks(page: str) -> list[str]:
    """Fenced blocks, whole."""
    return re.findall(r"^ *```\w*\n(.*?)^ *```", PAGES[page].read_text(encoding="utf-8"), re.M | re.S)


@cache
def spans(page: str) -> list[str]:
    """What stands in backticks within the text."""
    text = re.sub(r"^ *```.*?^ *```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.M | re.S)
    return [" ".join(s.split()) for s in re.findall(r"``?([^`]+)``?", text)]


def words(page: str) -> set[str]:
    return {w.strip(".,;:()\"'") for text in (*blocks(page), *spans(page)) for w in text.split()}


# -- what there is -----------------------------------------------------------------------------------------------------


def statements(n: ast.AST) -> Iterator[ast.stmt]:
    """All statements below a node, those of functions and classes included; expressions hold no definitions."""
    for part in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(n, part, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


@cache
def defined() -> Mapping[str, set[str]]:
    """Every class, function and value of the source -> its members, and its bases as `<Base`."""
    out: dict[str, set[str]] = {}
    for path in modules().values():
        for n in statements(tree(path)):
            for name in names_given(n):
                out.setdefault(name, set())
            if isinstance(n, ast.ClassDef):
                out[n.name].update(name for inner in statements(n) for name in names_given(inner))
                out[n.name].update(f"<{ast.unparse(b).split('.')[-1].split('[')[0]}" for b in n.bases)
    return out


def names_given(n: ast.AST) -> Iterator[str]:
    """By a definition or an assignment, `self.name = ...` included."""
    if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield n.name
    targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else []
    for t in (x for target in targets for x in ast.walk(target)):
        if isinstance(t, ast.Name | ast.Attribute) and isinstance(t.ctx, ast.Store):
            yield t.id if isinstance(t, ast.Name) else t.attr


def members(name: str) -> set[str]:
    """Of a class and of those that it is made from."""
    own = defined().get(name, set())
    return own.union(*(members(base[1:]) for base in own if base.startswith("<") and base[1:] != name))


@cache
def names_in(module: str) -> set[str]:
    """What can be imported from a module; of a lazy one every word that it says."""
    found: set[str] = set()
    for n in statements(tree(modules()[module])):
        if isinstance(n, ast.Import | ast.ImportFrom):
            found |= {a.asname or a.name for a in n.names}
        found |= set(names_given(n))
    lazy = "__getattr__" in found
    return found | set(re.findall(r"\w+", modules()[module].read_text(encoding="utf-8"))) if lazy else found


def resolves(dotted: str) -> bool:
    """`evotrainer.judge.JudgeConfig.alpha`: a module, a name in it, a member of that."""
    parts = dotted.split(".")[1:]
    for k in range(len(parts), -1, -1):
        if (module := ".".join(parts[:k])) in modules():
            rest = parts[k:]
            return not rest or (rest[0] in names_in(module) and all(b in members(a) for a, b in pairwise(rest)))
    return False


@cache
def commands() -> dict[str, set[str]]:
    """`skills list` -> its options; families (`skills`) and "", which is `evotrainer` itself, have `--help` alone."""
    out: dict[str, set[str]] = {}

    def walk(name: str, command: Any) -> None:
        options = [p for p in command.params if p.param_type_name == "option"]
        out[name] = {"--help"}.union(*((*p.opts, *p.secondary_opts) for p in options))
        for second in getattr(command, "commands", ()):
            walk(f"{name} {second}".strip(), command.get_command(None, second))

    walk("", typer.main.get_command(app))
    return out


@cache
def folders() -> set[str]:
    return {p.name for p in SRC.rglob("*") if p.is_dir()}


@cache
def file_names() -> set[str]:
    return {p.name for top in TOP for p in (ROOT / top).rglob("*.py")}


# -- the rules ---------------------------------------------------------------------------------------------------------


@each_page
def test_every_file_that_a_page_names_exists(page: str) -> None:
    wrong = {w for w in words(page) if names_no_file(w)}
    if not page.startswith(QUOTING):
        wrong |= {w for w in words(page) if re.fullmatch(r"\w+\.py", w) and w not in file_names()}
    for to in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[page].read_text(encoding="utf-8")):
        if "://" not in to and not (PAGES[page].parent / to).exists():
            wrong.add(to)
    assert not wrong, sorted(wrong)


@each_page
def test_every_heading_that_a_link_names_exists(page: str) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", PAGES[page].read_text(encoding="utf-8"))
    inside = [(PAGES[page].parent / to if to else PAGES[page], name) for to, name in links if "://" not in to]
    assert not [f"{at.name}#{name}" for at, name in inside if at.suffix == ".md" and name not in anchors(at)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Names of a page's headings, as GitHub makes them."""
    heads = re.findall(r"(?m)^#+ +(.+?) *$", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).lower() for h in heads)
    return frozenset(re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain)


def names_no_file(word: str) -> bool:
    """A path of the repository, or a module's path below `src/evotrainer`, at which there is nothing."""
    path = word.split("::")[0].split(":")[0]
    if "/" not in path or not re.fullmatch(r"\w[\w.{},*/-]*", path) or path in THEIRS:
        return False
    first = path.split("/")[0]
    ways = ["".join(way) for way in product(*(p.split(",") for p in re.split(r"[{}]", path)))]  # a{b,c} -> ab, ac
    if first in TOP:
        return not all(any(ROOT.glob(way.rstrip("/"))) for way in ways)
    return path.endswith(".py") and first in folders() and not all(any(SRC.glob(way)) for way in ways)


@each_page
def test_every_name_that_a_page_places_in_a_file_is_defined_there(page: str) -> None:
    """`agents/__init__.py: AGENTS`."""
    wrong = [
        span for span in spans(page) if (found := re.fullmatch(r"([\w./]+\.py): (\w+)", span)) and gone(*found.groups())
    ]
    assert not wrong, wrong


def gone(path: str, name: str) -> bool:
    """Whether no statement of the file gives that name; what it only imports counts as defined elsewhere."""
    file = next((f for f in (ROOT / path, SRC / path) if f.is_file()), None)
    return file is None or name not in {n for s in statements(tree(file)) for n in names_given(s)}


@each_page
def test_every_dotted_name_of_ours_that_a_page_says_resolves(page: str) -> None:
    said: set[str] = set()
    for text in (*blocks(page), *spans(page)):
        said |= set(re.findall(r"\bevotrainer(?:\.[A-Za-z_]\w*)+(?![\w/-])", text))
        for module, names in re.findall(r"^\s*from (evotrainer[\w.]*) import (\([^)]*\)|.*)", text, re.M):
            said |= {
                f"{module}.{name.split()[0]}" for name in names.strip("()").split("#")[0].split(",") if name.strip()
            }
    for w in words(page):  # `judge.config.JudgeConfig`, and not `judge.alpha`, a key of the task file
        if re.fullmatch(r"[a-z_]+(\.[A-Za-z_]\w*)+", w) and ".".join(w.split(".")[:2]) in modules():
            said.add(f"evotrainer.{w}")
    wrong = {name for name in said - OTHER_DOTS if not resolves(name)}
    assert not wrong, sorted(wrong)


@each_page
def test_every_class_and_function_that_a_page_names_is_defined(page: str) -> None:
    anywhere = FOREIGN.union(defined(), *defined().values())
    wrong = set()
    for span in spans(page):
        if found := re.match(r"([A-Z]\w*)\b(?:\.([a-z_]\w*)(?![\w./-]))?(\()?", span):
            name, member, called = found.groups()
            ours = called or (member and member != "md") or re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", name)
            if ours and name not in FOREIGN and (name not in defined() or (member and member not in members(name))):
                wrong.add(span)
        elif (found := re.match(r"([a-z_]\w+)\(", span)) and found[1] not in anywhere:
            wrong.add(span)
    assert not wrong, sorted(wrong)


@each_page
def test_every_command_and_option_that_a_page_shows_exists(page: str) -> None:
    wrong = []
    lines = [line for block in blocks(page) for line in block.replace("\\\n", " ").splitlines()]
    for line in (*lines, *spans(page)):
        if found := re.match(r"(?:\$ |uv run |time )?evotrainer(?: (.*))?$", line.strip()):
            wrong += [f"{line.strip()}: {w}" for w in no_such(found[1] or "")]
    if page.startswith("docs/commands/"):
        every = set[str]().union(*commands().values())
        wrong += [s for s in spans(page) if (m := re.match(r"--[a-z][\w-]*", s)) and m[0] not in every]
    assert not wrong, wrong


def no_such(line: str) -> list[str]:
    """What is no command, or no option of it, in what follows `evotrainer`."""
    told = re.split(r"\s#|[|;&>]", line)[0].split()
    command = ""
    while told and f"{command} {told[0]}".strip() in commands():
        command = f"{command} {told.pop(0)}".strip()
    if not command or any(c.startswith(f"{command} ") for c in commands()):  # a family: its second word is missing
        return [told[0]] if told and re.fullmatch(r"[a-z][a-z-]*", told[0]) else []
    given = {w.split("=")[0] for w in told if re.match(r"\[?--[a-z]", w)}
    return sorted(o for o in given if o.strip("[]") not in commands()[command])


@each_page
def test_every_benchmark_and_make_target_that_a_page_names_exists(page: str) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    wrong = []
    for text in (*blocks(page), *spans(page)):
        for name in re.findall(r"python -m (bench[\w.]*)", text):
            at = ROOT.joinpath(*name.rstrip(".").split("."))
            wrong += [] if at.with_suffix(".py").is_file() or (at / "__main__.py").is_file() else [name]
        wrong += [f"make {t}" for t in re.findall(r"^make ([\w-]+)", text, re.M) if t not in targets]
    assert not wrong, wrong


def test_what_does_not_exist_is_found() -> None:
    assert names_no_file("records/nothing.py") and names_no_file("tests/nothing/test_it.py")
    assert not names_no_file("executors/ray/{executor,driver}.py") and not names_no_file("trials/b1-s1/spec.json")
    assert gone("trainers/__init__.py", "make_trainer") and gone("trainers/nothing.py", "get_trainer")
    assert not gone("trainers/__init__.py", "TRAINERS") and not gone("src/evotrainer/trainers/base.py", "TrainerSpec")
    assert resolves("evotrainer.judge.JudgeConfig") and not resolves("evotrainer.judge.Nothing")
    assert no_such("verify RUN --head HASH --nothing # --else") == ["--nothing"]
    assert no_such("skills list RUN") == [] and no_such("dance") == ["dance"]


def test_the_tree_is_in_the_order_of_its_imports() -> None:
    """A package stands above all that it imports."""
    listed = next(b for b in blocks("docs/architecture.md") if "src/evotrainer/" in b)
    order = re.findall(r"^  ([a-z_]+)(?:/|\.py)", listed, re.M)
    place = {name: i for i, name in enumerate(order)}
    used = {(m.split(".")[0], u.split(".")[0]) for m, us in module_graph().items() for u in us}
    above = {(a, b) for a, b in used if a != b and a in place and b in place and place[a] > place[b]}
    assert not above, f"listed above who imports them: {sorted(above)}"
    rooms = {name for pair in used for name in pair} - {"", "__main__"}
    assert rooms == set(order), sorted(rooms ^ set(order))
