"""Runs of an older version (commit 0fd9488): read, verified, explained and resumed by this one.

`finished` closed; `killed` lost its driver while `b3` trained, and `killed.json.xz` holds the events (id -> kind, body)
that the older version added when it resumed it, with a fingerprint of the machine's arithmetic.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotrainer import api
from evotrainer.cli.why import why
from evotrainer.executors.spec import read_spec
from evotrainer.records.events import BODIES
from tests.paper import rejudged

OLD = Path(__file__).parents[1] / "data" / "old_runs"
MADE_WITH = (True, False)
"""`kernels` of the machine that made the runs."""
RULED = ("least", "rules", "confidence", "alpha", "split", "purpose", "train", "harness", "seed", "branch", "control")
"""Fields of bodies that say by which rule something was computed."""
COST = ("cpu_s", "wall_s", "peak_rss_mb")
"""Fields that say what something cost."""
WRITTEN = ("files", "parts_sha256", "proof", "sha256")
"""Fields that hash files as libraries write them, or events with their times; `verify` holds them against both."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], api.Run]:
    """An old run by its name, unpacked where its environment's relative path leads to the environment."""
    shutil.copy(OLD / "leaky_env.py", tmp_path)
    monkeypatch.chdir(tmp_path)

    def unpacked(name: str) -> api.Run:
        with tarfile.open(OLD / f"{name}.tar.xz") as tar:
            tar.extractall(tmp_path, filter="data")
        return api.open_run(name)

    return unpacked


def test_a_finished_run_verifies_and_is_closed(old: Callable[[str], api.Run]) -> None:
    run = old("finished")
    report = run.verify()
    assert report.ok, report.problems
    assert report.unchecked == () and set(report.chain_only) == {"diagnosed", "proposed"}
    assert report.checked["scores"] == 35 and report.checked["rollouts"] == 23184
    before = len(run.events())
    assert len(api.resume(run.folder).events()) == before


def test_every_verdict_and_every_harness_version_recomputes(
    old: Callable[[str], api.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = old("finished")
    assert {v.branch: v.kind for v in run.verdicts} == {"b1": "invalid", "b2": "reject", "b3": "reject"}
    for v in run.verdicts:
        assert rejudged(run, v.branch).holds
        why(run.folder, v.branch)
        assert "recomputed from the ledger: the same verdict, every number" in capsys.readouterr().out
    for version in ("h0", "h1", "h2"):
        why(run.folder, version)
        assert "recomputed from the ledger: " in capsys.readouterr().out


def test_its_report_shows_every_branch(old: Callable[[str], api.Run], tmp_path: Path) -> None:
    run = old("finished")
    html = run.report(tmp_path / "report.html").read_text(encoding="utf-8")
    for branch in ("b0", "b1", "b2", "b3"):
        assert html.count(f' id="{branch}"') == 1, branch


def test_an_interrupted_run_goes_on_as_the_version_that_began_it_would_have(old: Callable[[str], api.Run]) -> None:
    told = json.loads(lzma.decompress((OLD / "killed.json.xz").read_bytes()))
    run = old("killed")
    before = [e.hash for e in run.events()]
    api.resume(run.folder)
    events = run.events()
    assert [e.hash for e in events[: len(before)]] == before
    new = events[len(before) :]
    assert in_order([e.id for e in new]) == in_order(list(told["events"])), "trials finish as they like"
    report = run.verify()
    assert report.ok, report.problems
    same_machine = arithmetic() == told["arithmetic"] and kernels() == MADE_WITH
    for e in new:
        kind, body = told["events"][e.id]
        assert e.kind == kind
        # a field that is younger than the expected body has its default there
        now, then = e.body.model_dump(mode="json"), BODIES[kind].model_validate(body).model_dump(mode="json")
        assert ruled(now) == ruled(then), e.id
        if same_machine:
            assert bare(now) == bare(then), e.id
    if not same_machine:
        pytest.skip("rules compared; weights and scores are those of a machine with another float32 arithmetic")


def in_order(ids: list[str]) -> list[str]:
    """Ids as they follow one another, those of trials that end side by side sorted behind."""
    ended = [x for x in ids if x.endswith("/finished")]
    return [x for x in ids if x not in ended] + sorted(ended)


def bare(x: Any) -> Any:
    """A body without what it cost and how its files were written."""
    if isinstance(x, dict):
        return {k: bare(v) for k, v in x.items() if k not in (*COST, *WRITTEN) and "cpu" not in k}
    return [bare(v) for v in x] if isinstance(x, list) else x


def ruled(x: Any) -> Any:
    """What the version that began a run decides, whatever the machine's arithmetic is: settings of rules."""
    if isinstance(x, dict):
        own = {k: v for k, v in x.items() if k in RULED}
        deeper = {k: ruled(v) for k, v in x.items() if isinstance(v, dict | list)}
        return own | {k: v for k, v in deeper.items() if v}
    return [y for v in x if (y := ruled(v))] if isinstance(x, list) else None


def kernels() -> tuple[bool, bool]:
    """(AMD, AVX-512): PyTorch chooses its kernels by them; their sums differ in the last digits where NumPy's agree."""
    path = Path("/proc/cpuinfo")
    words = path.read_text(encoding="utf-8").split() if path.is_file() else []
    return "AuthenticAMD" in words, "avx512f" in words


def arithmetic() -> str:
    """A fingerprint of this machine's float32 arithmetic:
    products as a small policy computes them, and their exponentials."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((128, 48), (48, 96)))
    return hashlib.sha256(np.exp(a @ b / 8).tobytes()).hexdigest()[:16]


def test_specifications_of_an_earlier_version_are_read(old: Callable[[str], api.Run]) -> None:
    folders = [p.parent for p in (old("finished").folder / "trials").glob("*/spec.json")]
    specs = [read_spec(f) for f in folders]
    assert folders and {"key": "other"} in [s.env_knobs for s in specs], "an audit's evaluation closed the key"


def test_the_negative_share_of_an_old_runs_training_is_that_of_its_rollouts(old: Callable[[str], api.Run]) -> None:
    """Against a plain sum over rollouts that an older version stored."""
    from evotrainer.harness import Batch, measure
    from evotrainer.harness.columns.source import stored
    from evotrainer.records.reading import read_batches

    run = old("finished")
    train = stored(read_batches([run.folder / "rollouts" / "b0-s1"], split="train"))
    rows = train.rollouts(range(train.n))
    pull = [(r.advantage or 0.0) * (r.tokens or 0) for r in rows if r.error_kind is None]
    share = -sum(x for x in pull if x < 0) / sum(map(abs, pull))
    m = measure(Batch.of(rows), names=["negative_share"])["negative_share"]
    assert m.value == pytest.approx(share) and 0.1 < share < 0.9
