"""What verl said of configurations, recorded by `python -m tests.extras.verl.record`,
traced to the factors behind it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.extras.verl.record import CASES

from evotrainer.extras.verl.complaints import Validation, explain
from evotrainer.extras.verl.inside.check import demand_fitting_trl

ANSWERS = json.loads((Path(__file__).parent / "data" / "answers.json").read_text(encoding="utf-8"))

SAID = {
    "gpus do not divide the batch": (
        ("prompts_per_step", "group_size"),
        r"real_train_batch_size \(9\) must be divisible.*prompts_per_step x group_size = 9 must be a multiple of the 2 "
        r"GPUs",
    ),
    "mini-batch larger than the batch": (
        ("prompts_per_step",),
        r"train_batch_size \(4\) must be >= actor.ppo_mini_batch_size \(64\).*a batch of 4 prompts cannot hold a "
        r"mini-batch of 64",
    ),
    "tensor parallel does not divide the gpus": ((), r"tensor_model_parallel_size that divides the 4 GPUs"),
    "unknown setting": ((), r"gpu_memory_utilisation.*no such setting; correct it in trainer.options.command"),
    "prompts are too long": (
        ("prompts_per_step",),
        r"0 prompts are no longer than data.max_prompt_length \(3\) tokens",
    ),
}


def said(answer: dict[str, object]) -> Validation:
    return explain("libraries talk\n" + json.dumps(answer) + "\nand talk")


def test_all_recorded_answers_are_tested() -> None:
    assert set(ANSWERS) == set(CASES) == {*SAID, "valid", "all plug-ins"}


@pytest.mark.parametrize("name", ["valid", "all plug-ins"])
def test_what_verl_accepts_is_accepted(name: str) -> None:
    assert str(said(ANSWERS[name])) == "valid: verl 0.9.1 accepts the settings and loads the plug-ins"


@pytest.mark.parametrize("name", SAID)
def test_what_verl_refuses_names_factor_and_remedy(name: str) -> None:
    factors, words = SAID[name]
    v = said(ANSWERS[name])
    assert not v.ok and [f.factors for f in v.findings] == [factors]
    assert re.search(f"verl refuses the settings: .*{words}", str(v))
    assert not explain("nothing").ok


def test_an_error_nobody_foresaw_is_passed_on_with_the_factors_it_names() -> None:
    answer: dict[str, object] = {
        "ok": False,
        "stage": "compose",
        "error": {"type": "ConfigKeyError", "message": "no value of kl_loss_coef"},
    }
    (f,) = said(answer).findings
    assert f.factors == ("kl_beta",) and str(f).startswith(
        "ConfigKeyError at compose: no value of kl_loss_coef [factor kl_beta]"
    )


def test_a_trl_that_verls_workers_fail_on_is_found_before_a_gpu_is_paid_for(tmp_path: Path) -> None:
    """The one that EvoTrainer's own trl extra installs: an H200's first two attempts ended so."""
    with pytest.raises(RuntimeError, match=r"holds TRL 1\.\d+\.\d+, on which its workers fail") as raised:
        demand_fitting_trl(None, tmp_path)
    error = {"type": "RuntimeError", "message": str(raised.value)}
    (f,) = said({"ok": False, "stage": "libraries", "error": error}).findings
    assert f.factors == () and "pip uninstall trl" in f.remedy


def test_a_trl_with_what_verl_wants_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trl.AutoModelForCausalLMWithValueHead", object, raising=False)
    demand_fitting_trl(None, tmp_path)


def test_an_environment_that_cannot_grade_there_is_found_before_a_gpu_is_paid_for() -> None:
    error = {"type": "TaskSetError", "message": "needs math-verify, which is not installed"}
    (f,) = said({"ok": False, "stage": "environment", "error": error}).findings
    assert f.factors == ("rewards",) and "needs math-verify" in f.message and "the extra math" in f.remedy
