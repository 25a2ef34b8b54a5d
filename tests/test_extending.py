"""What it takes to add a factor, detector, metric, importer, command or trainer: the files of a copy of the package
that have to be touched, and what reacts without being touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from scripts import settings_reference

from evotrainer.errors import ConfigError
from evotrainer.factors import FACTORS
from evotrainer.factors.lint import lint
from evotrainer.factors.trainer_mapping import refusals
from evotrainer.records.recipe import Recipe
from tests.import_graph import SRC

ROOT = SRC.parents[1]
Edit = str | tuple[str, str]
"""A new file's text, or (what is there, what goes before it)."""
ADDED: Mapping[str, tuple[int, Mapping[str, Edit]]] = {
    "factor": (
        3,
        {
            "records/recipe.py": (
                "    length: LengthRule",
                '    failure_price: float = Field(0.0, ge=0)\n    """Taken from what earned nothing."""\n',
            ),
            "factors/reward.py": (
                '    Factor(\n        "length",',
                """\
    Factor(
        "failure_price",
        names="price_of_failure",
        lint=(warning(lambda r: r.failure_price > 1, "{r.failure_price:g} is more than a success pays"),),
        moves=(Move("price_failure", (0.2, 0.5), "what fails is unlearnt once it costs reward", "laziness"),),
        off="the price makes spread that is not about the task",
        replay="advantages",
        embedded=True,
        verl=refused("the price is not computed there", "set it to 0", lambda r: r.failure_price > 0),
    ),
""",
            ),
            "algorithm/rewards.py": (
                "    if recipe.repetition_penalty:\n        reward -=",
                "    reward -= recipe.failure_price * (reward <= 0)\n",
            ),
        },
    ),
    "detector": (
        1,
        {
            "harness/detectors/shouting.py": dedent(
                '''\
                """Shouting."""

                from evotrainer.harness.registry import DetectorInput, detector
                from evotrainer.records.findings import Finding


                @detector("shouting", "laziness", "behaviour", needs=["text"], thresholds={"warn": 0.5})
                def shouting(given: DetectorInput) -> list[Finding]:
                    """Over half of the completions are in capitals."""
                    loud = sum(given.batch.rollout(i).completion.isupper() for i in range(given.batch.n))
                    share = loud / max(1, given.batch.n)
                    severity = given.level(share)
                    return [given.finding(severity, "it shouts", {"share": share})] if severity else []
                '''
            )
        },
    ),
    "metric": (
        1,
        {
            "harness/layers/marks.py": dedent(
                '''\
                """Marks."""

                from evotrainer.harness.columns.batch import Batch
                from evotrainer.harness.context import HarnessContext
                from evotrainer.harness.registry import MetricValues, metric


                @metric("exclamations", "behaviour", unit="per completion")
                def exclamations(batch: Batch, context: HarnessContext) -> MetricValues:
                    """Exclamation marks of a completion."""
                    n = [batch.rollout(i).completion.count("!") for i in range(batch.n)]
                    return MetricValues(sum(n) / max(1, len(n)), len(n))
                '''
            )
        },
    ),
    "importer": (
        1,
        {
            "importers/formats/shouts.py": dedent(
                '''\
                """Rollouts of a program that shouts: a JSON object a line, with `shout`."""

                import json
                from collections.abc import Iterator
                from pathlib import Path

                from evotrainer.importers.base import Source
                from evotrainer.records.rollout import Rollout, Turn


                class Shouts:
                    name, about = "shouts", "what a program shouts"

                    def recognises(self, source: Source) -> bool:
                        return source.path.suffix == ".shouts"

                    def read(self, path: Path) -> Iterator[Rollout]:
                        for n, line in enumerate(path.read_text().splitlines()):
                            turns = (Turn("user", "?"), Turn("assistant", json.loads(line)["shout"]))
                            yield Rollout(id=str(n), task="t", turns=turns, reward=None, outcome="unknown", group="t")


                IMPORTER = Shouts()
                '''
            )
        },
    ),
    "command": (
        1,
        {
            "cli/shout.py": dedent(
                '''\
                def shout(word: str) -> None:
                    """Say a word loudly."""
                    print(word.upper())
                '''
            )
        },
    ),
    "trainer": (
        1,
        {
            "trainers/idle/__init__.py": '"""A trainer that trains nothing."""\n',
            "trainers/idle/spec.py": dedent(
                """\
                from evotrainer.factors.table import OURS
                from evotrainer.trainers.base import TrainerSpec


                def make(sampler, options):
                    return object()


                SPEC = TrainerSpec(make=make, carries={f: OURS for f in ("rewards", "lr", "steps")})
                """
            ),
        },
    ),
}
"""What is added -> (files of the package that it may touch; for a trainer, folders), what is done to each."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all of them added."""
    at = tmp_path_factory.mktemp("copy")
    shutil.copytree(SRC, at / "evotrainer", ignore=shutil.ignore_patterns("__pycache__"))
    for _, edits in ADDED.values():
        for name, edit in edits.items():
            file = at / "evotrainer" / name
            if isinstance(edit, str):
                file.parent.mkdir(exist_ok=True)
                file.write_text(edit, encoding="utf-8")
            else:
                text = file.read_text(encoding="utf-8")
                assert text.count(edit[0]) == 1, f"{name} no longer has {edit[0]!r}"
                file.write_text(text.replace(edit[0], edit[1] + edit[0]), encoding="utf-8")
    return at


def says(package: Path, script: str) -> str:
    """What a script prints that runs with the copy."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(package), str(ROOT))), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, env=env, cwd=package)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("what", ADDED)
def test_so_few_files_are_touched(what: str) -> None:
    most, edits = ADDED[what]
    touched = {Path(name).parent if what == "trainer" else name for name in edits}
    assert len(touched) <= most


def test_a_factor_is_known_to_all_who_ask(package: Path) -> None:
    said = says(
        package,
        """\
        from scripts.settings_reference import recipe
        from tests.agents.briefings import START, FakeTools, briefing, health, rollouts

        from evotrainer.agents.catalogue import candidates
        from evotrainer.agents.pool import situation
        from evotrainer.agents.seat.request import factors
        from evotrainer.errors import ConfigError
        from evotrainer.factors.lint import lint
        from evotrainer.harness.whatif.backtest import backtest
        from evotrainer.records.recipe import parse_recipe
        from evotrainer.trainers import check_recipes

        priced = START.with_factor("failure_price", 2.0)
        print("lint:", [x.message for x in lint(priced) if x.factor == "failure_price"])
        asked = briefing(report=health({"laziness": 0.9}))
        found = [c for c in candidates(situation(asked, FakeTools(), 0), set()) if c.factor == "failure_price"]
        print("moves:", sorted((c.variant.value, c.bottleneck, c.mean > 0.02) for c in found))
        back = situation(briefing(START.with_factor("failure_price", 0.2)), FakeTools(), 0)
        print("back:", [c.name for c in candidates(back, set()) if c.factor == "failure_price"])
        print("reference:", [x for x in recipe().splitlines() if x.startswith("| `failure_price`")])
        print("seat:", factors(asked)["failure_price"].legal)
        done = backtest(found[0].intervention(situation(asked, FakeTools(), 0), 0.01, "b0"), START, rollouts())
        print("replay:", done.verdict, "misranked_before" in done.numbers)
        check_recipes("embedded", {}, [priced])
        for ask in (lambda: check_recipes("trl", {}, [priced]), lambda: parse_recipe({"price_of_failure": 1}),
                    lambda: check_recipes("command", {"command": ["true"], "map": "verl"}, [priced])):
            try:
                ask()
            except ConfigError as e:
                print("refused:", e)
        """,
    )
    told = [line.partition(": ")[::2] for line in said.splitlines()]
    by = dict(told)
    assert by["lint"] == "['2 is more than a success pays']"
    assert by["moves"] == "[(0.2, 'laziness', True), (0.5, 'laziness', True)]" and by["back"] == "['failure_price_off']"
    assert "Taken from what" in by["reference"] and by["reference"].endswith("| yes | embedded |']")
    assert by["seat"] == "number >= 0"
    assert by["replay"] == "contradicts True", "all that fail pay the same: within a group it only changes the scale"
    refused = [text for head, text in told if head == "refused"]
    assert "failure_price: the trl trainer does not implement it; leave it out" in refused[0]
    assert "did you mean failure_price?" in refused[1]
    assert "failure_price: the price is not computed there; set it to 0" in refused[2]


def test_an_instrument_is_a_file(package: Path) -> None:
    said = says(
        package,
        """\
        from evotrainer.harness.metrics import measure
        from evotrainer.harness import Batch, detect
        from evotrainer.records.rollout import Rollout, Turn

        rows = [Rollout(id=str(k), task="t", turns=(Turn("user", "?"), Turn("assistant", "NOW!")), reward=0.0,
                        outcome="incorrect", group="g", k=k) for k in range(4)]
        batch = Batch.of(rows)
        values = measure(batch, names=["exclamations"])
        found = detect(batch, values, names=["shouting"])
        print(values["exclamations"].value, [(f.detector, f.severity) for f in found])
        """,
    )
    assert said == "1.0 [('shouting', 'warn')]\n"


def test_an_importer_and_a_command_are_a_file_and_a_trainer_a_folder(package: Path, tmp_path: Path) -> None:
    (tmp_path / "a.shouts").write_text('{"shout": "HO"}\n')
    said = says(
        package,
        f"""\
        from typer.testing import CliRunner

        from evotrainer.cli import app
        from evotrainer.errors import ConfigError
        from evotrainer.importers import read
        from evotrainer.records.recipe import Recipe
        from evotrainer.trainers import TRAINERS, check_recipes

        print([r.completion for _, _, r in read([{str(tmp_path / "a.shouts")!r}])])
        shell = CliRunner()
        print(shell.invoke(app, ["shout", "ho"]).output.strip(), "shout" in shell.invoke(app, ["--help"]).output)
        print(list(TRAINERS), type(TRAINERS["idle"].make("fp32", {{}})).__name__)
        check_recipes("idle", {{}}, [Recipe(rewards={{"x": 1.0}}, lr=1e-4)])
        try:
            check_recipes("idle", {{}}, [Recipe(rewards={{"x": 1.0}}, kl_beta=0.1)])
        except ConfigError as e:
            print(e)
        """,
    )
    assert said.splitlines() == [
        "['HO']",
        "HO True",
        "['command', 'embedded', 'idle', 'trl'] object",
        'trainer idle: kl_beta: the idle trainer does not implement it; leave it out, or set trainer.name = "embedded"',
    ]


def test_a_field_without_a_row_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FACTORS, "weight_decay")
    recipe = Recipe(rewards={"x": 1.0}, weight_decay=0.1)
    assert [(x.level, x.factor) for x in lint(recipe)] == [("error", "weight_decay")]
    assert lint(Recipe(rewards={"x": 1.0})) == []
    assert refusals(recipe, "embedded") == ["weight_decay: the embedded trainer does not implement it; leave it out"]
    with pytest.raises(ConfigError, match="weight_decay has no row in evotrainer/factors"):
        settings_reference.recipe()


def test_what_a_row_says_of_the_embedded_trainer_is_so() -> None:
    """Each field that it claims to carry out is read by what trains, samples and pays."""
    rooms = ("algorithm", "trainers", "executors", "envs")
    code = "\n".join(p.read_text(encoding="utf-8") for r in rooms for p in (SRC / r).rglob("*.py"))
    claimed = [name for name in Recipe.model_fields if FACTORS[name].embedded]
    assert len(claimed) > 30
    assert not [name for name in claimed if not re.search(rf"(?:recipe|request|\br|rule)\.{name}\b", code)]
