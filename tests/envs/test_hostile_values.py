"""Whatever a program returns, raises or prints, no one who grades, stores, reads or shows it is ended by it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

from evotrainer.envs.base import Score, Task
from evotrainer.envs.code.answers import same_value
from evotrainer.envs.code.env import CodeEnv, _detail
from evotrainer.envs.code.rewards import CaseOutcome
from evotrainer.envs.code.source import GrammarSource
from evotrainer.envs.registry import open_environment
from evotrainer.envs.swe.env import SweEnv
from evotrainer.errors import ConfigError
from evotrainer.harness import Harness, HarnessContext
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.authored import flags
from evotrainer.projections import text
from evotrainer.records.arrow_schema import scrub
from evotrainer.records.chain import canonical
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.reading import load
from evotrainer.records.rollout import Rollout, groups_of
from evotrainer.records.store import RolloutStore
from evotrainer.records.text import as_text, json_safe, shown
from evotrainer.sandbox import Call, Program, Sandbox, same
from evotrainer.sandbox.detector_runner import SandboxRunner
from evotrainer.views import folder as folder_views
from evotrainer.views.report import write_report
from evotrainer.views.rollouts import fitted_entry, rollout_entry
from tests.envs.helpers import grade
from tests.envs.hostile import PRINTS, RAISES, VALUES
from tests.envs.swe import mirrors
from tests.harness_inputs import coded
from tests.whole_run import build_run

DATA: dict[str, dict[str, Any]] = {
    "function": {"visible": [([1, 2], [3])], "hidden": [([5], [5])]},
    "call": {
        "visible": [([1], {"5": 1})],
        "hidden": [([2], [5])],
        "entry_point": "solve",
        "preamble": "",
        "perturb": False,
    },
    "check": {
        "visible": [("assert solve(1) == 5", None)],
        "hidden": [("assert str(solve(2)) == '5'", None)],
        "perturb": False,
    }
    | {"entry_point": "solve", "names": ()},
    "stdin": {"visible": [("1 2\n", "3\n")], "hidden": [("5\n", "5\n")]},
}


class Forms(GrammarSource):
    """One task of every form."""

    def sizes(self) -> dict[str, int]:
        return {"search": len(DATA)}

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(form, split, f"task {form}", {"form": form, "spec": "", **data}) for form, data in DATA.items()]

    def prompt(self, task: Task, knobs: Mapping[str, Any]) -> str:
        return task.prompt


def programs(form: str) -> list[str]:
    if form == "stdin":
        return [*PRINTS.values(), *(f"print({v})" for v in VALUES.values()), *RAISES.values()]
    return [f"def solve(*args):\n    {s}" for s in (*(f"return {v}" for v in VALUES.values()), *RAISES.values())]


@pytest.fixture(scope="module")
def scores(box: Sandbox) -> list[tuple[str, Score]]:
    """(program, score) of every hostile program in every form."""
    env = CodeEnv(Forms(), open_sandbox=lambda: box)
    out = []
    for task in env.tasks("search"):
        mine = programs(task.id)
        out += list(zip(mine, grade(env, [task] * len(mine), mine), strict=True))
    return out


@pytest.fixture(scope="module")
def recorded(scores: list[tuple[str, Score]]) -> list[Rollout]:
    """The attempts as they are recorded."""
    return [
        replace(
            coded(i % 8, i // 8, program, True, False), outcome=s.outcome, detail=s.detail,
            components=dict(s.components), error=s.error, error_kind=s.error_kind
        )
        for i, (program, s) in enumerate(scores)
    ]  # fmt: skip


def test_every_form_of_grading_calls_them_wrong(scores: list[tuple[str, Score]]) -> None:
    assert len(scores) > 180
    for program, score in scores:
        assert (score.outcome, score.error_kind) == ("incorrect", None), program
        json.dumps(score.detail, allow_nan=False, ensure_ascii=False).encode()


def test_they_are_stored_and_read_back_alike(recorded: list[Rollout], tmp_path: Path) -> None:
    with RolloutStore(tmp_path / "store") as store:
        store.append(groups_of(recorded))
        store.seal()
    found = {r.id: r for r in load([tmp_path / "store"])}
    assert [found[r.id].detail for r in recorded] == [scrub(r).detail for r in recorded]


def test_the_harness_reads_them(recorded: list[Rollout]) -> None:
    report = Harness.default().read(recorded, "b1", HarnessContext())
    assert report.rollouts == len(recorded)
    canonical(report).encode()  # as the ledger writes it


def test_report_and_show_show_them(recorded: list[Rollout], tmp_path: Path) -> None:
    texts = iter(recorded * 100)

    def hostile(r: Rollout) -> Rollout:
        other = next(texts)
        return replace(r, detail=other.detail, error=other.error, turns=(r.turns[0], other.turns[-1]))

    folder = build_run(tmp_path / "run", rollout=hostile)
    assert write_report(folder).stat().st_size > 10_000
    for r in recorded:
        text.script_json([rollout_entry(r), fitted_entry(r, 3000)])
    ids = [r.id for part in (folder / "rollouts").iterdir() for r in load([part])][:40]
    for i in ids:
        console = Console(file=io.StringIO(), width=140)
        console.print(folder_views.render_rollout(folder, i))


# -- repositories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*VALUES, *RAISES])
def test_repositories_call_them_wrong(swe: SweEnv, name: str) -> None:
    task = swe.tasks("search")[0]
    repo = task.data["repo"]
    line = RAISES.get(name) or f"return {VALUES[name]}"
    body = f"def {repo.tags['function']}(*args):\n    {line}\n\ndef test_{repo.tags['function']}():\n    {line}"
    e = swe.reset(task, {})
    for action in (f"write {repo.tags['module']}\n{body}", f"write test_mine.py\n{body}", "test", "submit"):
        swe.step([e], [action], ["stop"])
    (score,) = swe.score([e])
    assert (score.outcome, score.error_kind) == ("incorrect", None)
    for t in e.turns:
        t.text.encode()
    json.dumps(score.detail, allow_nan=False, ensure_ascii=False).encode()


ODD_NAMES = """import os
for name in (b'\\xff.py', b'test_\\xff.py', b'a\\nb.py', b'\\xed\\xa0\\x80', b'test_\\x1b[31m.py', b'x' * 255):
    with open(name, 'wb') as file:
        file.write(b'def test_x():\\n    pass\\n\\xff')
os.symlink(b'\\xff/\\xfe', b'link\\xff')
os.mkdir(b'folder\\xff')
with open(b'folder\\xff/test_a.py', 'w') as file:
    file.write('def test_q(): raise type("x\\x1b", (Exception,), {})()')
def test_x(): raise type('A' * 300 + '\\x1b', (Exception,), {})()
"""


def test_names_that_are_no_text_can_be_told_and_stored(tmp_path: Path) -> None:
    repos, rows = mirrors.make(tmp_path)
    options = {"source": str(mirrors.write(tmp_path, rows[:1])), "repos": str(repos), "admit": False}
    env = open_environment({"name": "swe", **options})
    e = env.reset(env.tasks("cert")[0], {"tests": "writable"})
    for action in (f"write test_mine.py\n{ODD_NAMES}", "test", "ls", "git status", "git diff", "grep def", "submit"):
        env.step([e], [action], ["stop"])
    (score,) = env.score([e])
    env.close()
    assert (score.outcome, score.error_kind) == ("incorrect", None)
    with pytest.raises(UnicodeEncodeError):  # the environment tells them as they are
        "".join(seen.text for seen in e.state["observations"]).encode()
    for t in e.turns:
        t.text.encode()
    json.dumps(score.detail, allow_nan=False, ensure_ascii=False).encode()


# -- detectors ---------------------------------------------------------------------------------------------------------

READ = FeatureView([coded(0, k, "print(1)", True, False) for k in range(4)])
_SEND = "def flag(rollouts):\n    import os\n    os.write(4, {line!r} + b'\\n')\n    os._exit(0)"
DETECTORS = {
    **{
        f"returns {name}": f"def flag(rollouts):\n    return {v}" for name, v in VALUES.items() if "million" not in name
    },
    **{
        f"returns four times {n}": f"def flag(rollouts):\n    return [{VALUES[n]}] * 4"
        for n in ("10**5000", "NaN", "a date")
    },
    **{f"raises {name}": f"def flag(rollouts):\n    {line}" for name, line in RAISES.items()},
    "says 1 for true": "def flag(rollouts):\n    return [1] * len(rollouts)",
    "says something true": "class B(int): pass\ndef flag(rollouts):\n    return [B(1)] * len(rollouts)",
    "answers a tuple": "def flag(rollouts):\n    return (True,) * len(rollouts)",
    "answers one too few": "def flag(rollouts):\n    return [True] * (len(rollouts) - 1)",
    "ends the process": "import os\ndef flag(rollouts):\n    os._exit(0)",
    "sends an exception of one character": _SEND.format(line=b'{"s": "error", "t": 0.0, "e": "x"}'),
    "sends an exception of one number": _SEND.format(line=b'{"s": "error", "t": 0.0, "e": [5]}'),
    "claims endless time": _SEND.format(line=b'{"s": "ok", "t": Infinity, "v": [true, true, true, true]}'),
    "claims the sandbox's fault": _SEND.format(line=b'{"s": "sandbox", "t": 0.0}'),
    "claims to be true in text": _SEND.format(line=b'{"s": "ok", "t": 0.0, "o": "[true, true, true, true]"}'),
}


@pytest.fixture
def runner(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> SandboxRunner:
    """The driver's runner, in the sandbox that is open already."""
    # only opening and closing are faked: the sandbox is a real one, and to open one per detector would take minutes
    monkeypatch.setattr(Sandbox, "open", classmethod(lambda cls, **options: box))
    monkeypatch.setattr(Sandbox, "close", lambda self: None)
    return SandboxRunner()


@pytest.mark.parametrize("name", DETECTORS)
def test_no_answer_of_a_detector_ends_the_driver_or_flags_anything(runner: SandboxRunner, name: str) -> None:
    spec = DetectorSpec(name="mine", form="python", source=DETECTORS[name], standing="suspect")
    with pytest.raises(ConfigError) as refused:
        flags(spec, READ, runner)
    str(refused.value).encode()
    h = Harness.minimal().evolve("h1", authored=[spec])
    (f,) = h.read([*READ.rollouts], "b1", HarnessContext(sandboxed=runner)).findings
    assert f.severity == "warn" and f.missing, "to choke clears nobody"
    f.claim.encode()


def test_an_honest_detector_flags(runner: SandboxRunner) -> None:
    source = "def flag(rollouts):\n    return [i % 2 == 0 for i, _ in enumerate(rollouts)]"
    spec = DetectorSpec(name="mine", form="python", source=source)
    assert flags(spec, READ, runner).tolist() == [True, False, True, False]


def test_rollouts_without_end_are_the_detectors_problem_not_the_drivers(runner: SandboxRunner) -> None:
    huge: list[dict[str, object]] = [{"turns": [[0] * 1000 for _ in range(3000)]}]
    with pytest.raises(ConfigError, match="cannot be handed"):
        runner("def flag(rollouts):\n    return [True]", huge)


# -- values of any kind, without a program -----------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=4200, max_value=6000).map(lambda n: 10**n)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()), max_size=200)
    | st.binary(max_size=50)
    | st.fractions()
    | st.decimals(allow_nan=True)
    | st.dates()
    | st.booleans().map(lambda _: object())
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.integers(min_value=-3) | st.text(max_size=3) | st.integers(0, 0).map(lambda _: 10**5000),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, phases=[Phase.generate])  # shrinking writes integers in decimal
@given(got=ANYTHING, expected=ANYTHING, limit=st.integers(4, 600))
def test_any_value_is_shown_in_bounds(got: Any, expected: Any, limit: int) -> None:
    for t in (
        shown(got, limit),
        json_safe(got, limit),
        as_text(got),
        text.clean(got),
        text.one_line(got),
        text.value(got),
    ):
        json.dumps(t, allow_nan=False)
    assert len(shown(got, limit)) <= limit
    shown(got, limit).encode()
    case = CaseOutcome("visible", [1], expected, got, "ok", False)
    json.dumps(_detail([case]), ensure_ascii=False, allow_nan=False).encode()
    same_value(got, json.loads('{"1": [1, {"a": null}], "x": 2.5}'), True)
    same(got, expected)


def test_a_circle_is_shown() -> None:
    circle: list[Any] = [1]
    circle += [circle, {"a": circle}]
    assert shown(circle, 60).startswith("[1, [1, [1,")
    assert len(shown(circle, 60)) == 60
    text.value(circle)


@pytest.mark.parametrize(
    "value", [[1, "a"], (1,), {"a": {2}}, frozenset({3}), b"x", {1.5: None}, set(), (), range(3), 1j]
)
def test_what_is_short_is_shown_as_its_repr(value: Any) -> None:
    assert shown(value, 100) == repr(value)


def test_a_value_of_the_sandbox_is_shown_with_it(box: Sandbox) -> None:
    (run,) = box.run([Program("class Thing: pass\ndef f(): return [Thing(), 10**5000]", calls=[Call("f")])])
    assert shown(run.cases[0].value, 60).startswith("[Opaque(type='Thing', handle=-1), 0x31e2")
