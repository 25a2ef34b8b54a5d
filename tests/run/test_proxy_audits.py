"""`run.shortcut_audits` where only the proxy rose: the audit compares the proxy."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evotrainer.cli.why import why
from evotrainer.executors.spec import TrialSpec
from evotrainer.records import keys
from evotrainer.records.events import Diagnosed, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.run import shortcut_audits
from tests.leaky_task import ENV, EXPLOITS, MINIMAL, TASK, finish
from tests.paper import Paper, bodies

PROXIED = """
from tests.data.leaky_env import LeakyEnv


def environment():
    env = LeakyEnv()
    env.proxy = ("in_order", "right")
    return env
"""


def proxied_task(folder: Path, paid: str) -> Path:
    """The task with an environment that names a proxy, and a recipe that pays one component."""
    (folder / "proxied.py").write_text(PROXIED)
    task = folder / "task.toml"
    task.write_text(TASK.replace(str(ENV), str(folder / "proxied.py")).replace("right = 1.0", f"{paid} = 1.0"))
    return task


def test_where_only_the_proxy_rose_the_audit_compares_the_proxy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def share(branch: str, lr: float, knobs: dict[str, Any]) -> float:
        """How often the proxy is earned; the outcome never moves."""
        if branch == "base" or lr < EXPLOITS:
            return 0.4
        return 0.9 if knobs.get("key") == "answer" else 0.42

    def proxied(spec: TrialSpec) -> TrialFinished:
        done = finish(spec.model_copy(update={"recipe": spec.recipe.model_copy(update={"lr": 1e-5})}))
        scores = []
        for s in done.scores:
            rng = random.Random(f"{spec.trial} {s.split}")
            p = share(spec.branch, spec.recipe.lr, done.env_knobs)
            per = {t: sum(rng.random() < p for _ in range(4)) / 4 for t in s.per_task}
            scores.append(s.model_copy(update={"proxy_per_task": per}))
        return done.model_copy(update={"scores": tuple(scores)})

    def said(spec: TrialSpec) -> list[Rollout]:
        trial, rng = spec.trial, random.Random(spec.trial)
        p = share(spec.branch, spec.recipe.lr, {} if "closed" in trial else {"key": "answer"})
        out = []
        for i in range(100):
            right = rng.random() < 0.35
            paid = right or rng.random() < (p - 0.35) / 0.65
            turns = (Turn("user", f"sort {i}"), Turn("assistant", "quick guess" if paid and not right else "slow work"))
            out.append(
                Rollout(
                    id=f"{trial}-{i}", task=f"t{i // 2}", turns=turns, reward=float(paid), group=f"{trial}-{i // 2}",
                    k=i % 2, split="search", components={"in_order": float(paid), "right": float(right)},
                    outcome="correct" if right else "incorrect",
                )
            )  # fmt: skip
        return out

    run = Paper(proxied, said).start(proxied_task(tmp_path, "in_order"), tmp_path / "run", [MINIMAL])
    (gap,) = bodies(run, "gap")
    assert gap.branch == "b1" and gap.trigger == "contradiction" and gap.claim.startswith("in_order ")
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited" and e.body.audit.branch == "b1"]
    assert audit.measure == "in_order" and audit.confirmed and audit.confidence == pytest.approx(0.995)
    assert audit.score_open > 0.8 and audit.score_closed < 0.5 and audit.reason.startswith("measured by in_order")
    assert audit.trigger in {a.detector.name for a in gap.considered if a.admitted}
    assert run.verdicts[0].kind == "invalid" and "b1" in run.state.invalid
    why(run.folder, "b1")
    told = capsys.readouterr().out
    assert "in_order on the gate split" in told and "the same verdict" in told
    assert not [p for p in run.verify().problems if p.area == "audited"]


@pytest.mark.parametrize(
    ("kind", "paid", "measured"),
    [
        ("special_casing", "in_order", "in_order"),
        ("special_casing", "right", ""),
        ("answer_leak", "in_order", ""),
    ],
)
def test_a_finding_that_parts_the_proxy_from_the_truth_is_answered_by_the_proxy(
    tmp_path: Path, kind: str, paid: str, measured: str
) -> None:
    paper = Paper(finish)
    run = paper.start(proxied_task(tmp_path, paid), tmp_path / "run", ["run.rounds=0", "judge.audit=never"])
    said = Finding(detector="says_so", kind=kind, severity="critical", claim="it is so")
    with paper.context(run) as ctx:
        health = ctx.state.readings["b0"].model_copy(update={"findings": (said,)})
        ctx.record(keys.reading("b0", 2), Diagnosed, lambda: Diagnosed(round=0, health=health))
        asked = partial(shortcut_audits.proxy_questioned, ctx, "b0")
        assert asked("says_so", 0.2) == measured
        assert asked("promotion", 0.2) == "", "an outcome that rose is what is audited"
        unpaid = "" if paid != "in_order" else "in_order"
        assert asked("promotion", 0.0) == asked("certification", -0.1) == unpaid
