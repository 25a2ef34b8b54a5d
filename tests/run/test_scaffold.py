"""Texts around the tasks as a factor: checked with labels, told apart from training in the verdict, carried with the
policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import draw_result

from evotrainer import api
from evotrainer.agents.seat.request import factors
from evotrainer.cli import app
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.caveats import caveats
from evotrainer.projections.labels import label_of_refusal
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.events import TrialFinished
from evotrainer.records.interventions import Intervention, Prediction
from tests.paper import Paper, bodies, complaints, rejudged

ENV = Path(__file__).parents[1] / "data" / "worded_env.py"
TASK = f"""
[task]
name = "worded"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
[policy.warm_start]
demonstrations = 2000
steps = 350
lr = 4e-3
[policy.warm_start.shape]
width = 48
layers = 2
heads = 2
mlp = 96
context = 48
[recipe]
lr = 1e-5
steps = 1
prompts_per_step = 8
group_size = 4
max_tokens = 3
schedule = {{warmup = 0}}
[recipe.rewards]
right = 1.0
[evaluation]
search_attempts = 2
gate_attempts = 4
cert_attempts = 2
draw = "fixed"
[judge]
min_seeds = 2
min_effect = 0.02
[run]
agent = "fixed"
rounds = 1
branches = 1
seeds = [1, 2]
certify_seeds = [101, 102]
health_every = 0
[run.agent_options]
interventions = [{{factor = "scaffold.prompt", new = "look: {{task}}"}}]
[budget]
trial_cpu_s = 60
"""
CHEATS = {
    "unknown_slot": ("scaffold.sistem", "Look closely."),
    "identical": ("scaffold.prompt", "{task}"),
    "placeholder_missing": ("scaffold.prompt", "The digit is 7."),
    "too_long": ("scaffold.system", "look " * 1000),
    "reads_protected": ("scaffold.system", "Once the lamp of gate number 3 is lit, say 4."),
}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "worded.toml"
    path.write_text(TASK)
    return path


class Writer:
    """Proposes one text after the other, and keeps what it was offered."""

    name = "writer"

    def __init__(self, *texts: tuple[str, str | None]) -> None:
        self.texts, self.offered = texts, {}

    def propose(self, briefing: Briefing, tools: Any) -> Proposal:
        self.offered = factors(briefing)
        recipe = briefing.champion.recipe
        made = [
            Intervention(
                factor=slot, old=recipe.value(slot), new=text, hypothesis="the policy does not know what is asked",
                prediction=Prediction(metric="accuracy", direction="up", size=0.01),
                success_criterion="gate score +1 point", rollback="champion",
            )
            for slot, text in self.texts
        ]  # fmt: skip
        return Proposal(agent=self.name, interventions=tuple(made))


def finish(spec: TrialSpec) -> TrialFinished:
    """With a system prompt the untrained policy solves 50%, without one 40%; trained with it, 60%."""
    worded = "system" in spec.protocol.scaffold
    solved = 0.4 + 0.1 * worded + 0.1 * (worded and spec.branch != "base")
    return draw_result(spec, solved, lambda plan: f"{spec.branch}-{spec.seed}-{plan.split}-{worded}", {})


def run_on_paper(task: Path, out: Path, agent: Writer, *overrides: str) -> tuple[api.Run, Paper]:
    paper = Paper(finish)
    return paper.start(task, out, ["run.branches=6", *overrides], agent=agent), paper


def test_each_text_that_will_not_do_ends_in_its_label_and_no_branch(task: Path, tmp_path: Path) -> None:
    run, _ = run_on_paper(task, tmp_path / "r", Writer(*CHEATS.values()))
    said = [b.reason for b in bodies(run, "refused")]
    assert [r.split(": ")[1] for r in said] == list(CHEATS) and all(r.startswith("recipe.scaffold: ") for r in said)
    assert not [b for b in run.state.branches.values() if b.intervention]
    assert [label_of_refusal(r) for r in said][-2:] == ["size_blocked", "disqualified"]
    assert "gate" not in said[-1] and "number 3" not in said[-1], "a refusal must not tell what gate holds"
    assert complaints(run) == []


def test_a_seat_is_told_the_slots_and_what_may_stand_there(task: Path, tmp_path: Path) -> None:
    agent = Writer()
    run_on_paper(task, tmp_path / "r", agent)
    offer = agent.offered["scaffold.prompt"]
    assert offer.now is None and "holds {task} once" in offer.legal and "reads_protected" in offer.legal
    assert "scaffold.system" in agent.offered and "scaffold" not in agent.offered


def test_a_verdict_tells_what_the_scaffold_does_without_any_training(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, paper = run_on_paper(task, tmp_path / "r", Writer(("scaffold.system", "Look closely.")))
    (v,) = [b.verdict for b in bodies(run, "judged")]
    gate = next(g for g in v.gates if g.gate == "scaffold")
    assert v.kind == "promote" and gate.message in v.reason
    assert 0.0 < gate.numbers["alone"] < v.effect.mean  # type: ignore[union-attr]
    assert "untrained" in gate.message and "of the gain of" in gate.message
    control = [s for s in paper.ran if "-texts-" in s.trial]
    assert [p.split for s in control for p in s.evals] == ["search", "gate", "cert"]
    assert all(
        not s.train and s.branch == "base" and s.protocol.scaffold == {"system": "Look closely."} for s in control
    )
    assert not rejudged(run, "b1")
    assert complaints(run) == []
    # the champion's certificate: base and start are read without, the champion with its texts
    cert = run.certification
    assert cert is not None and 0 < cert.scaffold["alone"] < cert.comparisons["champion-base"]["mean"]
    told = [c for c in caveats(run.events())["b1"] if c.kind == "scaffold"]
    assert "certified with its scaffold (system)" in told[0].text
    app(["why", str(run.folder), "b1"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "text       system@" in out and "    | Look closely." in out
    assert "scaffold: the policy and its scaffold" in out


def test_a_default_text_and_an_environment_without_slots_are_refused_by_name(task: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="identical: prompt is the default text"):
        api.start(task, tmp_path / "r", ['recipe.scaffold={prompt="{task}"}'])
    bare = tmp_path / "bare.py"
    bare.write_text(ENV.read_text().replace('truth="right",', 'truth="right", slots=(),'))
    task.write_text(TASK.replace(str(ENV), str(bare)))
    with pytest.raises(ConfigError, match="worded has no slot 'prompt'; it declares none"):
        api.start(task, tmp_path / "r2", ['recipe.scaffold={prompt="look: {task}"}'])


# a dozen trials in processes of their own: minutes where the machine is shared by many
LONG = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """A real run whose only change is what the task stands in: that alone does it all."""
    folder = tmp_path_factory.mktemp("worded")
    (folder / "worded.toml").write_text(TASK)
    return api.start(folder / "worded.toml", folder / "run")


@pytest.mark.slow
@LONG
def test_a_prompt_that_does_it_all_is_not_told_as_training(trained: api.Run) -> None:
    (v,) = [b.verdict for b in bodies(trained, "judged")]
    found = next(g for g in v.gates if g.gate == "scaffold").numbers
    assert v.kind == "promote" and found["alone"] > 0.5 and found["beyond"] < 0.25 * v.effect.mean  # type: ignore[union-attr]
    assert not trained.verify().problems
    from evotrainer.records.reading import load

    # training, search and the sealed splits of the branch see the text; those of the starting recipe do not
    for trial, worded in (("b1-s1", True), ("b0-s1", False)):
        places = [trained.folder / "rollouts" / trial, trained.folder / "sealed" / trial]
        seen = list(load(places))
        assert {r.split for r in seen} >= {"train", "search", "gate"}
        assert {r.turns[0].text.startswith("look: ") for r in seen} == {worded}


@pytest.mark.slow
@LONG
def test_the_exported_model_carries_its_scaffold_and_the_report_shows_it(trained: api.Run, tmp_path: Path) -> None:
    out = trained.export(tmp_path / "model")
    told = json.loads((out / "scaffold.json").read_text())
    assert told["texts"]["prompt"]["text"] == "look: {task}"
    assert "Serve it with its scaffold" in (out / "README.md").read_text()
    assert "Text of the slot prompt@" in trained.report().read_text(encoding="utf-8")
