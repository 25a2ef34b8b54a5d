"""Ways out of a written function, to a module, a clock, the environment, or chance: each is refused by what its source
says, or leads nowhere in its process, where it has the same values at every start."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from evotrainer.records.hooks import hook_fault
from evotrainer.records.written import MODULES, static_fault
from evotrainer.sandbox.inside import pure
from evotrainer.sandbox.reward_runner import RewardRunner
from tests.tables import table

GETATTR = (
    "def get(o, n):\n        class M(type):\n            def __instancecheck__(cls, x):\n                return True\n"
    "        A = M('A', (), {'__match_args__': (n,)})\n        match o:\n            case A(f):\n"
    "                return f\n    "
)
"""What reads an attribute by a name in data, by a pattern."""
_DATA = table("ways_out")
WAYS: dict[str, str] = _DATA["ways"]
"""Bodies of `reward`; `got` answers 1 where what it is handed was reached."""
START = "def got(what):\n    return 1.0\n\n\ndef print_():\n    return 1\n\n\ndef reward(rollout):\n    "


@pytest.fixture(scope="module")
def runners() -> Iterator[list[RewardRunner]]:
    """Two sandboxes, whose processes lie at other places in memory."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(RewardRunner(accept_tier_e=True))) for _ in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_a_way_out_is_refused_or_leads_nowhere(way: str, runners: list[RewardRunner]) -> None:
    source = START + WAYS[way] + "\n"
    said = static_fault(source)
    assert hook_fault(source.replace("def reward(rollout)", "def weights(rollouts)")) or said is None
    shown: list[dict[str, object]] = [{"n": i} for i in range(6)]
    first, again = (r(source, shown).values for r in runners)
    assert first == again and len(set(first)) == 1, (
        f"{way}: other values elsewhere, or from call to call: {first}, {again}"
    )
    assert said is not None or 1.0 not in first, f"{way}: admitted, and it got out"


FRAMES = """
def reward(rollout):
    g = None
    def walk():
        yield g.gi_frame.f_back
    g = walk()
    f = next(g).f_back
    modules = [v for v in f.f_globals.values() if type(v) is type(f.f_globals["signal"])]
    {then}
"""
"""Where nobody reads the source, the frames above lead to modules of the sandbox's own."""


def test_beyond_the_checks_of_the_source_there_is_no_clock_to_import(runners: list[RewardRunner]) -> None:
    assert static_fault(FRAMES.replace("{then}", "return 1.0")) is not None

    def asked(then: str) -> float | None:
        return runners[0](FRAMES.replace("{then}", then), [{}]).values[0]

    assert asked("return float(len(modules) > 5)") == 1.0, "the frames are there: what follows can fail"
    assert asked("return float(f.f_builtins['__import__']('math').floor(1.5))") == 1.0
    for name in ("time", "datetime", "os", "random", "posix", "_datetime", "_random", "uuid", "subprocess"):
        assert asked(f"f.f_builtins['__import__']('{name}')\n    return 1.0") is None, name
    made = (
        GETATTR
        + "types = get(object, '__subclasses__')()\n    B = next(t for t in types if t.__name__ == 'BuiltinImporter')"
    )
    made += "\n    g = get(get(B, 'find_spec'), '__globals__')\n    "
    assert asked(made + "return float('_imp' in g)") == 1.0, "the importer is there: what follows can fail"
    assert asked(made + "return g['_imp'].create_builtin(g['ModuleSpec']('time', B)).time() % 1") is None
    assert asked("return 0.5 + any(hasattr(m, 'monotonic') or hasattr(m, 'gauss') for m in modules) / 2") == 0.5


HONEST: list[str] = [*_DATA["honest"].values()]


@pytest.mark.parametrize("body", HONEST)
def test_honest_code_is_admitted_and_answers(body: str, runners: list[RewardRunner]) -> None:
    source = f"def reward(rollout):\n    {body}\n"
    assert static_fault(source) is None
    said = runners[0](source, [{"text": "ab1"}])
    assert said.values[0] is not None, said.failed


BY_NAME = {
    "ast.dump": "shows them as text, of a node alone",
    "ast.copy_location": "of two nodes, and places alone",
    "ast.NodeVisitor": "methods of its own, visit_ before the name of a class",
    "ast.NodeTransformer": "sets nodes within nodes",
    "functools.total_ordering": "comparisons of a class alone",
}
"""What is shown though it reads or sets attributes by names that are no constants, and why it leads nowhere."""


def test_nothing_that_is_shown_reads_attributes_by_names_that_are_data() -> None:
    found = set()
    for name in MODULES:
        module = importlib.import_module(name)
        try:
            body = ast.parse(inspect.getsource(module)).body
        except (OSError, TypeError):
            continue  # written in C: attrgetter and methodcaller are the ones known
        public = pure._public(module)
        for top in (n for n in body if getattr(n, "name", None) in public):
            for n in ast.walk(top):
                called = (
                    isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("getattr", "setattr")
                )
                if called and not isinstance(n.args[1], ast.Constant):  # type: ignore[attr-defined]
                    found.add(f"{name}.{top.name}")  # type: ignore[attr-defined]
    assert found == set(BY_NAME)


def test_every_allowed_module_shows_what_it_documents(runners: list[RewardRunner]) -> None:
    for name in MODULES:
        said = runners[0](f"import {name}\ndef reward(rollout):\n    return len(dir({name})) / 200\n", [{}])
        assert said.values[0] is not None and said.values[0] > 0.01, (name, said.failed)
