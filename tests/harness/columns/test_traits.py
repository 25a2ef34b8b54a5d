"""`harness.columns.traits`: the same however a rollout reaches the harness:
as an object, from a table, kept, in parts, compiled or not.
"""

from __future__ import annotations

import hashlib
import io
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evotrainer.harness.columns import scan as scanning
from evotrainer.harness.columns import traits
from evotrainer.harness.columns.chunk import from_rollouts, from_table
from evotrainer.harness.columns.extract import extract
from evotrainer.harness.columns.scan import Scan, jaccard, scan_buffer
from evotrainer.harness.columns.traits import FLOATS, VERSION, Traits, join, load, save, take
from evotrainer.records.arrow_schema import arrow_schema, encode
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from tests.audit_files import generate

PIECES = [
    "x",
    "print",
    "(",
    ")",
    "=",
    "+",
    "\n",
    "# c",
    "if",
    "foo",
    "bar",
    "1",
    "22",
    " ",
    "\t",
    ".",
    "é",
    "```",
    "python",
]


def scan(texts: list[bytes]) -> Scan:
    """Read each text."""
    ends = np.cumsum([len(t) for t in texts], dtype=np.int64) if texts else np.zeros(0, np.int64)
    starts = np.concatenate([np.zeros(min(1, len(texts)), np.int64), ends[:-1]])
    return scan_buffer(b"".join(texts), starts, ends)


def same(a: Traits, b: Traits, exact: bool = True) -> None:
    assert a.n == b.n
    for name in FLOATS:
        np.testing.assert_allclose(
            a.columns[name].astype(float), b.columns[name].astype(float), rtol=0 if exact else 1e-6, err_msg=name
        )
    assert a.components.keys() == b.components.keys()
    for name in a.components:
        np.testing.assert_array_equal(a.components[name], b.components[name])
    np.testing.assert_array_equal(a.solution, b.solution)
    np.testing.assert_array_equal(a.sketch, b.sketch)
    assert [a.fault.names[i] if i >= 0 else None for i in a.fault.code] == [
        b.fault.names[i] if i >= 0 else None for i in b.fault.code
    ]
    calls = [
        [(int(r), t.tools[k], int(ok)) for r, k, ok in zip(*(t.calls[c] for c in ("row", "tool", "ok")), strict=True)]
        for t in (a, b)
    ]
    assert calls[0] == calls[1]


def table(rollouts: list[Rollout]) -> pa.Table:
    return pa.Table.from_batches([encode(rollouts)], arrow_schema())


def test_odd_rollouts_are_read_from_a_table() -> None:
    rs = [
        Rollout(id="a", task="t", turns=(), reward=None),
        Rollout(id="b", task="t", turns=(Turn("user", "q"),), reward=float("nan")),
        Rollout(id="c", task="", turns=(Turn("assistant", "\x00\u202e" * 50),), reward=float("inf")),
        Rollout(id="d", task="t", turns=(Turn("assistant", "", (ToolCall("", "{", None),)),), reward=1.0),
        Rollout(
            id="e", task="t", turns=(Turn("assistant", "x", tokens=3), Turn("assistant", "y", tokens=4)), reward=0.0
        ),
        Rollout(id="f", task="t", turns=(Turn("assistant", "z"),), reward=0.0, detail={"tests": 5}, error_kind="judge"),
        Rollout(
            id="g", task="t", turns=(Turn("system", ""), Turn("user", "q")), reward=0.0, detail={"patch": float("nan")}
        ),
    ]
    chunk = from_table(table(rs))
    b = extract(chunk)
    assert b.columns["tokens"][4] == 7
    assert np.isnan(b.columns["reward"][[0, 1, 2]]).all(), "what is no number is missing, not 0"
    assert b.columns["turns"].tolist() == [0, 0, 1, 1, 2, 1, 0]
    assert b.columns["prompt"].tolist() == [0, 1, 0, 0, 0, 0, 1], "also where the first turn holds no text"
    assert (~np.isnan(b.columns["actions"])).tolist() == [False, False, False, True, True, False, False]
    assert [b.fault.names[i] if i >= 0 else None for i in b.fault.code] == [None] * 5 + ["judge", None]
    assert sorted(chunk.details) == [5, 6] and np.isnan(chunk.details[6]["patch"]), (
        "NaN does not hide what stands beside it"
    )
    assert b.subject.names == ("",) and b.subject.code.tolist() == [0] * 7
    same(b, extract(from_rollouts(rs)))


def test_kept_traits_come_back_and_damage_is_noticed(tmp_path: Path) -> None:
    t = extract(from_rollouts(generate(80)))
    data = save(t)
    back = load(io.BytesIO(data))
    assert back is not None
    same(t, back, exact=False)
    for cut in (0, 10, len(data) // 2, len(data) - 3):
        path = tmp_path / "t.npz"
        path.write_bytes(data[:cut])
        assert load(path) is None


def test_parts_put_together_are_the_whole() -> None:
    rs = generate(120)
    whole = extract(from_rollouts(rs))
    parts = [extract(from_rollouts(rs[a:b], a)) for a, b in ((0, 7), (7, 64), (64, 120))]
    same(whole, join(parts))
    rows = np.array([100, 3, 55, 8])
    same(take(whole, rows), extract(from_rollouts([rs[i] for i in rows])))


@pytest.mark.skipif(not scanning.can_compile(), reason="numba is not installed")
def test_the_compiled_kernel_reads_what_the_plain_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    texts = ["".join(rng.choices(PIECES, k=rng.randint(0, 300))).encode() for _ in range(400)]
    texts += [b"", b"\xff\xfe\x00", b"a\n" * 50, b"x" * 30_000, b"= " * 12_000]
    plain = scan(texts)
    monkeypatch.setattr(scanning, "COMPILE_FROM", 0)
    compiled = scan(texts)
    for field in ("words", "repetition", "line_run", "visible", "solution", "sketch"):
        np.testing.assert_array_equal(getattr(plain, field), getattr(compiled, field), err_msg=field)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=80))
def test_repetition_and_words_are_those_of_their_definition(pieces: list[str]) -> None:
    """Against a direct count over the same words."""
    import re

    text = "".join(pieces).encode()
    words = re.findall(rb"[A-Za-z0-9_\x80-\xff]+|[^\sA-Za-z0-9_\x80-\xff]", text)
    s = scan([text])
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    assert s.words[0] == len(words)
    assert s.repetition[0] == pytest.approx(1 - len(set(grams)) / len(grams) if grams else 0.0)
    lines = [re.sub(rb"\s", b" ", ln.rstrip()) for ln in text.split(b"\n") if ln.strip()]
    best = run = 0
    for i, ln in enumerate(lines):
        run = run + 1 if i and ln == lines[i - 1] else 1
        best = max(best, run)
    assert s.line_run[0] == best


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("x = 1\nprint(x)", "y = 1  # other name\nprint( y )", True),
        ("x = 1\nprint(x)", "x = 2\nprint(x)", False),
        ("a.sort()\nb = a", "q.sort()\nr = q", True),
        ("a.sort()\nb = a", "a.clear()\nb = a", False),
        ("Paris", "London", False),
        ("Paris", "Paris ", True),
        ("text\n```python\nx=1\n```", "other words\n```python\nz=1\n```", True),
        ("```python\nx=1\n```\nno:\n```python\nx=2\n```", "```python\nq=2\n```", True),
    ],
)
def test_solutions_are_equal_up_to_names_comments_and_layout(a: str, b: str, equal: bool) -> None:
    s = scan([a.encode(), b.encode()]).solution
    assert bool(s[0] == s[1]) is equal


def test_jaccard_of_sketches_is_close_to_jaccard_of_words() -> None:
    rng = random.Random(1)
    errors = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        for _ in range(60):
            common = [f"c{rng.random()}" for _ in range(int(200 * share))]
            texts = [" ".join(common + [f"{k}{rng.random()}" for _ in range(200 - len(common))]) for k in "ab"]
            words = [set(__import__("re").findall(r"\w+|\S", t)) for t in texts]
            true = len(words[0] & words[1]) / len(words[0] | words[1])
            s = scan([t.encode() for t in texts]).sketch
            errors.append(float(jaccard(s[0], s[1])) - true)
    assert abs(np.mean(errors)) < 0.02
    assert np.std(errors) < 0.08
    empty = scan([b"", b""]).sketch
    assert np.isnan(jaccard(empty[0], empty[1]))


def test_kept_traits_of_another_version_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = save(extract(from_rollouts(generate(8))))
    assert load(io.BytesIO(kept))
    monkeypatch.setattr(traits, "VERSION", traits.VERSION + 1)
    assert load(io.BytesIO(kept)) is None


def test_other_columns_are_another_version() -> None:
    """Raise `VERSION` with every change of what a trait means, and write the new pair here when columns change."""
    assert (VERSION, hashlib.sha256(" ".join(FLOATS).encode()).hexdigest()[:12]) == (29, "76c0a94f87b2")
