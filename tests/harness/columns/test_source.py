"""`harness.columns.source`: what is read of stored rollouts is what is read of the objects,
and hardly any of them becomes one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.errors import StoreError
from evotrainer.harness import Batch, Harness, HarnessContext
from evotrainer.harness.columns import source as sources
from evotrainer.harness.columns.chunk import from_table
from evotrainer.harness.columns.features import LENGTHS, OVERLAPS, FeatureView
from evotrainer.harness.columns.rollout_reader import RolloutReader, named_views
from evotrainer.harness.columns.source import InMemoryRollouts, JoinedRollouts, RolloutSource, stored
from evotrainer.harness.evolving.mining import mine
from evotrainer.records.arrow_schema import encode
from evotrainer.records.reading import load, read_batches
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, ToolCall, Turn, group_key, groups_of
from evotrainer.records.store import RolloutStore
from tests.acting import policy
from tests.harness_inputs import coded

TEXTS = (
    "",
    "42",
    "print(int(input()) * 2)",
    "import os\nos._exit(0)",
    "sort fast sort fast sort fast",
    "```python\nx = 1\n```",
)
CALLS = (
    (),
    (ToolCall("bash", "git show HEAD~1", True),),
    (ToolCall("bash", "pytest", False), ToolCall("edit", "a.py", None)),
)
# fmt: on
VISIBLE = {"kind": "visible", "input": "1", "expected": "42", "got": "42", "status": "ok", "passed": True}
HIDDEN = {"kind": "hidden", "input": "", "expected": "7", "status": "error", "error": "x", "passed": False}
DETAILS: tuple[dict[str, Any], ...] = (
    {},
    {"note": "nothing of interest"},
    {"tests": [VISIBLE, HIDDEN]},
    {"tests": [VISIBLE | {"seconds": float("nan")}], "patch": "+++ b/x.py\n+import os"},
)

turn = st.builds(
    Turn, st.sampled_from(("system", "user", "assistant", "tool")), st.sampled_from(TEXTS), st.sampled_from(CALLS),
    st.none() | st.integers(0, 9),
)  # fmt: skip
number = st.none() | st.sampled_from((0.0, 0.5, 1.0, float("nan"), float("inf")))
one = st.builds(
    Rollout,
    id=st.just(""),
    task=st.sampled_from(("t0", "t1", "t2")),
    turns=st.lists(turn, max_size=4).map(tuple),
    reward=number,
    components=st.dictionaries(st.sampled_from(("a", "b - c", "d")), number, max_size=3),
    outcome=st.sampled_from(("correct", "incorrect", "unknown")),
    finish=st.sampled_from((None, "stop", "length", "error")),
    branch=st.sampled_from(("", "b1")),
    split=st.sampled_from(("", "search")),
    step=st.integers(0, 2),
    group=st.sampled_from(("", "g0", "g1")),
    tokens=st.none() | st.integers(0, 50),
    advantage=number,
    error_kind=st.none() | st.none() | st.sampled_from(("sandbox", "judge")),
    detail=st.sampled_from(DETAILS),
)
some = st.lists(one, max_size=12).map(lambda rs: [replace(r, id=f"{i:032x}") for i, r in enumerate(rs)])


def keep(folder: Path, rollouts: list[Rollout], sealed: int) -> Path:
    """A store whose first groups are sealed, and the others in its tail."""
    with RolloutStore(folder) as store:
        store.append([[r] for r in rollouts[:sealed]])
        store.seal()
        store.append([[r] for r in rollouts[sealed:]])
    return folder


@settings(max_examples=60, deadline=None)
@given(rollouts=some, sealed=st.integers(0, 12))
def test_a_reading_of_the_store_is_the_reading_of_the_objects(
    rollouts: list[Rollout], sealed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = keep(tmp_path_factory.mktemp("store"), rollouts, sealed)
    context = HarnessContext(recipe=Recipe(rewards={"a": 1.0}), proxy=("a", "d"), before={"t0": 1.0, "t1": 0.0})
    h = Harness.default()
    source = stored(read_batches([folder]))
    assert h.read(Batch.over(source), "x", context) == h.read(load([folder]), "x", context)
    whole = JoinedRollouts([source, InMemoryRollouts(rollouts[:3])])
    assert h.read(Batch.over(whole), "x", context) == h.read([*rollouts, *rollouts[:3]], "x", context), (
        "an id counts once"
    )
    a, b = FeatureView(Batch.over(source, apart=True)), FeatureView(rollouts)
    assert (a.tasks, a.answers, a.commands, a.observations) == (b.tasks, b.answers, b.commands, b.observations)
    for name in (*LENGTHS, *OVERLAPS, "component:a", "component:b - c - d"):
        np.testing.assert_array_equal(a.number(name), b.number(name), err_msg=name)
    assert [r.id for r in a.rollouts] == [r.id for r in b.rollouts] == [r.id for r in rollouts if r.error_kind is None]


@settings(max_examples=60, deadline=None)
@given(rollouts=some.filter(len))
def test_columns_say_what_the_objects_say(rollouts: list[Rollout]) -> None:
    """Against the plain reading of one rollout after the other."""
    chunk = from_table(pa.Table.from_batches([encode(rollouts)]))
    assert [chunk.completion(i) for i in range(chunk.n)] == [r.completion for r in rollouts]
    assert [bool(x) for x in chunk.scalars["prompt"]] == [bool(r.prompt.strip("\n")) for r in rollouts]
    assert chunk.scalars["turns"].tolist() == [sum(t.role == "assistant" for t in r.turns) for r in rollouts]
    assert chunk.acting.tolist() == [
        any(t.tool_calls for t in r.turns) or sum(t.role == "assistant" for t in r.turns) > 1 for r in rollouts
    ]
    counts = [[t.tokens for t in r.turns if t.role == "assistant" and t.tokens is not None] for r in rollouts]
    tokens = [
        r.tokens if r.tokens is not None else sum(c) if c else None for r, c in zip(rollouts, counts, strict=True)
    ]
    assert [None if np.isnan(x) else x for x in chunk.scalars["tokens"]] == tokens
    names = [" ".join(x for x in (r.run, r.branch, r.split) if x) for r in rollouts]
    assert [chunk.subject.names[i] for i in chunk.subject.code] == names
    groups = [tuple(np.flatnonzero(chunk.group == g)) for g in dict.fromkeys(chunk.group.tolist())]
    place = {r.id: i for i, r in enumerate(rollouts)}
    assert groups == [tuple(place[r.id] for r in g) for g in groups_of(rollouts)], "and groups are those of `group_key`"
    assert len({group_key(r) for r in rollouts}) == len(groups)


def test_rollouts_without_id_are_not_taken_for_one_another() -> None:
    nameless = [Rollout("", "t", (), 1.0), Rollout("", "t", (), 0.0)]
    assert Batch.over(InMemoryRollouts(nameless)).n == 2
    many = [replace(nameless[0], id="")] * 3
    assert Batch.over(JoinedRollouts([InMemoryRollouts(many)])).n == 3


def test_only_what_is_asked_for_becomes_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    decode = sources.decode
    monkeypatch.setattr(sources, "decode", lambda batch: made.append(batch.num_rows) or decode(batch))
    rs = [coded(t, k, f"print({t} + {k})", visible=True, hidden=k % 2 == 0) for t in range(40) for k in range(8)]
    source = stored(read_batches([keep(tmp_path, [replace(r, id=f"{i:032x}") for i, r in enumerate(rs)], 200)]))
    batch = Batch.over(source)
    report = Harness.default().read(batch, "x", HarnessContext(recipe=Recipe(rewards={"visible": 1.0})))
    quotes = sum(len(f.quotes) for f in report.findings)
    assert quotes and sum(made) <= 3 * quotes, "objects are made of what is quoted"
    made.clear()
    rng = np.random.default_rng(0)
    odd = FeatureView(batch.pick(rng.permutation(batch.n)[:100]))
    mine(odd, FeatureView(batch))
    assert not made, "mining reads turns and columns"


def parts(source: RolloutSource) -> list[RolloutSource]:
    return source.parts if isinstance(source, JoinedRollouts) else [source]


def test_a_large_store_is_several_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rs = [replace(coded(t, k, "print(1)", True, True), id=f"{t:030x}{k:02x}") for t in range(30) for k in range(4)]
    folder = keep(tmp_path, rs, 60)
    monkeypatch.setattr(sources, "PIECE", 8 << 10)
    cut = stored(read_batches([folder]))
    assert len(parts(cut)) > 3 and cut.n == 120
    order = [100, 3, 3, 119, 0, 64]
    assert cut.rollouts(order) == [rs[i] for i in order] == cut.take(order).rollouts(range(6))
    assert [[t.text for t in turns] for turns in cut.turns(order)] == [[t.text for t in rs[i].turns] for i in order]
    assert cut.column("task", order) == [rs[i].task for i in order]
    assert cut.column("detail", [5]) == [rs[5].detail]
    h = Harness.default()
    assert h.read(Batch.over(cut), "x") == h.read(rs, "x")
    assert stored([]).n == 0 and h.read(Batch.over(stored([])), "x").rollouts == 0


def test_a_trial_is_read_once_and_the_oldest_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rs = {t: policy(t, {"sort": 0.5}, {}) for t in ("b1-s1", "b1-s2")}
    for t, some in rs.items():
        keep(tmp_path / "rollouts" / t, [replace(r, id=f"{t}-{r.id}", split="search") for r in some], 10)
    reader = RolloutReader(tmp_path)
    both = reader.batch("b1-s1", "b1-s2")
    whole = [r for t in rs for r in load([tmp_path / "rollouts" / t], split="search")]
    assert Harness.default().read(both, "x") == Harness.default().read(whole, "x")
    assert reader.search("b1-s1") is reader.search("b1-s1") and len(reader.views("b1-s2")) == len(rs["b1-s2"])
    monkeypatch.setattr("evotrainer.harness.columns.rollout_reader.KEPT", 1)
    small = RolloutReader(tmp_path)
    first = small.search("b1-s1")
    small.search("b1-s2")
    assert small.search("b1-s1") is not first
    with pytest.raises(StoreError):
        reader.search("b9-s1")


def test_training_rollouts_are_chosen_by_step_and_id(tmp_path: Path) -> None:
    rs = [replace(coded(t, k, "print(1)", True, True), id=f"{s}{t}{k}{'0' * 29}", split="train", step=s,
                  error_kind="sandbox" if (s, k) == (2, 0) or s == 4 else None)
          for s in (1, 2, 3, 4) for t in range(3) for k in range(2)]  # fmt: skip
    keep(tmp_path / "rollouts" / "b1-s1", [*rs, replace(rs[0], id="s" * 32, split="search")], 9)
    reader = RolloutReader(tmp_path)
    steps = reader.train_steps("b1-s1")
    assert {s: len(ids) for s, ids in steps.items()} == {1: 6, 2: 3, 3: 6, 4: 0}, "what was lost is left out"
    assert reader.train("b1-s1", steps[2]).rollouts == [r for r in rs if r.step == 2 and not r.error_kind]
    for name, expected in (("b1-s1 step 2", {2}), ("b1-s1 first 2 steps", {1, 2}), ("b1-s1 last 2 steps", {3})):
        assert {r.step for r in named_views(reader, name).rollouts} == expected, name
    assert len(named_views(reader, "b1-s1 step 9")) == 0
    halves = [named_views(reader, f"b1-s1 search, {half} tasks") for half in ("odd", "even")]
    assert sum(map(len, halves)) == 1 and len(named_views(reader, "b1-s1 search")) == 1
