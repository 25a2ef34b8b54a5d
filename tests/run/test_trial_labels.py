"""Every trial of a search has a label, whatever became of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from bench.compare.paper import draw_result

from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.labels import LABELS, label_of_refusal
from evotrainer.projections.trials import counts, labelled
from evotrainer.records.events import TrialFinished
from tests.cli.call import in_this_process as evotrainer
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, set_in

TASK = f"""
[task]
name = "labels"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
rounds = 1
branches = 1
probes = 15
workers = 2
seed = 2
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
[run.agent_options]
worth = 0
screen = 0
sure = 0.9
"""


def finish(spec: TrialSpec) -> TrialFinished:
    """A higher rate and larger batches help; four updates a step hurt; a training with much weight decay breaks off."""
    r = spec.recipe
    p = 0.45 + 0.08 * (r.lr > 1e-5) + 0.08 * (r.prompts_per_step > 16) - 0.1 * (r.updates_per_step > 1)
    p += random.Random(f"{set_in(r)}-{spec.seed}").gauss(0, 0.004) - 0.2 * (spec.branch == "base")
    done = draw_result(spec, p, lambda plan: f"{set_in(r)}-{spec.seed}-{plan.split}", spec.protocol.knobs)
    if spec.purpose == "probe" and r.weight_decay > 0:
        return done.model_copy(update={"status": "failed", "label": "train_budget_overrun", "error": "too long"})
    return done


def test_labels_are_shown_in_status_cases_and_report(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(TASK)
    run = Paper(finish).start(tmp_path / "task.toml", tmp_path / "run", [])
    rows = labelled(run.events())
    found = counts(rows)
    assert all(t.verified for t in rows if t.kind in ("search", "branch"))
    assert found["train_budget_overrun"] == sum(t.label == "train_budget_overrun" for t in rows if t.kind == "search")
    assert found["keep"] and found["discard"] and set(found) <= set(LABELS)
    assert "keep 1; 1 branch: keep 1" in " ".join(evotrainer("status", str(run.folder)).stdout.split())
    assert json.loads(evotrainer("status", str(run.folder), "--json").stdout)["labels"] == found
    shown = evotrainer("cases", str(run.folder), "--trials", "--json").stdout
    assert [t["trial"] for t in json.loads(shown)] == [t.trial for t in rows]
    wide = evotrainer("cases", str(run.folder), "--trials", env={"COLUMNS": "600"}).stdout
    assert "train budget overrun: too long" in wide
    page = run.report().read_text()
    assert "train_budget_overrun" in page and "Every trial" in page


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("over budget: 24 trials asked, 20 left of budget.trials=63", "size_blocked"),
        ("not among the first 1 of this round", "not_taken"),
        ("tried before as b1 (reject); to try it again, cite it", "repeated"),
        ("this recipe was trained already as b2", "repeated"),
        ("opens hint, which honest training has no need of (x)", "disqualified"),
        ("recipe.rewards pays right: the outcome of x, or derived from it, which is not for sale; reward y",
         "disqualified"),
        ("declared factor lr, but the recipes differ in clip", "preflight_crash"),
        ("branch changes 2 factors, exactly one is allowed; split it", "size_blocked"),
        ("trials.0: it changes 7 factors, at most 3 are possible here", "size_blocked"),
        ("the answer holds no JSON object; give one, no prose", "preflight_crash"),
        ("lr: Input should be greater than 0", "preflight_crash"),
    ],
)  # fmt: skip
def test_a_refusal_has_a_label(reason: str, label: str) -> None:
    assert label_of_refusal(reason) == label
