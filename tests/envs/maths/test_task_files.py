"""The shipped maths task files and the base policy that goes with them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.envs.vocabulary import vocabulary
from evotrainer.records.recipe import diff
from evotrainer.trainers.base import EvalRequest, Identity

ROOT = Path(__file__).resolve().parents[3]
FROZEN = "011cc2074ff922b4"
"""The human reference recipe, as documented in docs/domains/math.md."""


def test_the_reference_recipe_is_the_documented_one() -> None:
    recipe = load_task(ROOT / "tasks" / "math.toml").recipe
    assert recipe.hash == FROZEN
    assert FROZEN in (ROOT / "docs" / "domains" / "math.md").read_text(encoding="utf-8")
    assert dict(recipe.rewards) == {"correct": 1.0}


def test_each_pathology_differs_from_the_reference_in_what_it_says() -> None:
    reference = load_task(ROOT / "tasks" / "math.toml").recipe
    folder = ROOT / "examples" / "pathologies"
    assert set(diff(reference, load_task(folder / "length-collapse.toml").recipe)) == {"length", "steps"}
    assert set(diff(reference, load_task(folder / "policy-collapse.toml").recipe)) == {"lr", "steps"}


def test_the_shipped_base_policy_solves_some_of_every_kind_but_countdown() -> None:
    pytest.importorskip("reasoning_gym", reason="needs pip install 'evotrainer[math]'")
    from evotrainer.trainers.embedded.trainer import EmbeddedTrainer

    task = load_task(ROOT / "tasks" / "math.toml", ["environment.search=60"])
    base = resolve_base("builtin:math-v1")
    assert base is not None
    env = open_environment(task.environment)
    ask = EvalRequest(Identity("t", "b0", 1), task.recipe, base, "search", 0, attempts=4)
    got = [r for g in EmbeddedTrainer().evaluate(ask, env, lambda _: None) for r in g]
    kinds = {t.id: t.tags["generator"] for t in env.tasks("search")}
    solved = Counter(kinds[r.task] for r in got if r.outcome == "correct")
    assert len(got) == 240
    assert abs(solved.total() - 57) <= 3, (
        "57 of 240 measured; sampling is seeded, other processors may round differently"
    )
    assert set(solved) == {"chain_sum", "equation", "gcd", "story"}


def test_the_shipped_base_policy_fits_the_vocabulary() -> None:
    folder = resolve_base("builtin:math-v1")
    assert folder is not None
    assert (folder / "model.safetensors").stat().st_size < 4_000_000
    strings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert set(vocabulary("math-v1")) <= set(strings)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["vocabulary"] == "math-v1"
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"] == len(strings)
