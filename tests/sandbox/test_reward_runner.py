"""`RewardRunner`: what a written component could still try if every check of its source were blind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.records.written import static_fault
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.sandbox.values import MAX_NODES
from tests.tables import table

SECRET = "gate-7f3a9c-the-answer"
WAYS: dict[str, str] = table("sealed_ways")["ways"]
"""A way to reach what no component may -> its body, which answers 1 where it got there."""


@pytest.fixture(scope="module")
def runner() -> Iterator[RewardRunner]:
    found = RewardRunner(accept_tier_e=True)
    found("def reward(rollout):\n    return 1.0\n", [{}])
    yield found
    found.close()


@pytest.fixture
def listening() -> Iterator[int]:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        yield int(s.getsockname()[1])


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_to_what_is_sealed(
    way: str, runner: RewardRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: int
) -> None:
    assert runner._box is not None
    if runner._box.tier not in ("A", "B"):
        pytest.skip(f"a sandbox of tier {runner._box.tier} has no own file system")
    sealed = tmp_path / "sealed" / "b1-s1" / "gate.parquet"
    sealed.parent.mkdir(parents=True)
    sealed.write_text(SECRET)
    monkeypatch.setenv("EVOTRAINER_TEST_SECRET", SECRET)
    told = {
        "secret": SECRET,
        "half": SECRET[:11],
        "path": str(sealed),
        "folder": str(tmp_path),
        "pid": os.getpid(),
        "port": listening,
    }
    body = WAYS[way].format(**told)
    source = f"def reward(rollout):\n    {body}\n"
    said = runner(source, [{"nth": 0}, {"nth": 1}])
    assert 1.0 not in said.values, f"{way}: {said}"
    assert static_fault(source) is not None, "and its source says so before it is run"


def test_what_one_call_leaves_no_other_finds(runner: RewardRunner) -> None:
    source = "seen = []\n\ndef reward(rollout):\n    seen.append(1)\n    return float(len(seen) > 1)\n"
    assert runner(source, [{"nth": i} for i in range(130)]).values == [0.0] * 130


def test_a_rollout_too_large_to_be_handed_over_fails_alone(runner: RewardRunner) -> None:
    turn = {"role": "user", "text": "x", "calls": []}
    large = {"turns": [turn] * (MAX_NODES // 12)}
    said = runner("def reward(rollout):\n    return 1.0\n", [{"turns": []}, large, {"turns": []}])
    assert said.values == [1.0, None, 1.0] and "handed over" in said.failed[1]
