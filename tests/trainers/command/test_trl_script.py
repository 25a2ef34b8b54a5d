"""TRL's own GRPO script, unchanged, is a trainer: the example of docs/command-trainer.md, trained and certified."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.init import EXAMPLES, init
from evotrainer.trainers.base import installed
from tests.trainers.command.test_runs import FEW

PAGE = EXAMPLES.parent / "docs" / "command-trainer.md"
SMALL = [*FEW, "recipe.steps=2", "recipe.group_size=4", "policy.warm_start.steps=20", "run.workers=2"]


def test_the_page_quotes_the_example_whole() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for file in ("rewards.py", "grpo.yaml", "task.toml"):
        assert f"\n{(EXAMPLES / 'trl-script' / file).read_text(encoding='utf-8')}```\n" in page, file


@pytest.mark.slow
@pytest.mark.skipif(not installed("trl"), reason="needs trl: pip install 'evotrainer[trl]'")
@pytest.mark.timeout(900)
def test_trls_own_script_trains_unchanged(tmp_path: Path) -> None:
    init(tmp_path / "mine", name="", trainer="", from_="trl-script")
    run = api.start(tmp_path / "mine" / "task.toml", tmp_path / "run", overrides=SMALL)
    assert run.closed is not None and not run.verify().problems
    ended = [e.body for e in run.events() if e.kind == "finished" and e.body.steps]
    trained = sorted(ended, key=lambda t: t.trial)
    assert [t.trial for t in trained] == ["b0-s1", "b0-s2"], "without rounds certify_seeds are not trained"
    rows = trained[0].curve
    assert [row["step"] for row in rows] == [1, 2] and all("grad_norm" in row and "loss" in row for row in rows)
    assert 0 < rows[0]["cpu_s"] <= rows[1]["cpu_s"] < trained[0].cpu_s
    rollouts = list(run.rollouts("train", trial="b0-s1"))
    assert len(rollouts) == 64 and all(r.outcome != "unknown" for r in rollouts), "tasks are known by their prompts"
    assert all(r.components["in_place"] == pytest.approx(r.reward) for r in rollouts), "as the environment says"
    assert rows[0]["reward"] == pytest.approx(sum(r.reward or 0 for r in rollouts[:32]) / 32, abs=1e-6)
