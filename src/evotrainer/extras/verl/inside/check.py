"""Composes a training's settings and runs verl's own validate_config, without a GPU. Run by verl's Python:

    python check.py REQUEST OVERRIDE...

The last line of the output is a JSON object: stage, ok, error (type, message), versions, seconds.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any


def check(request: Path, overrides: list[str], out: dict[str, Any]) -> None:
    """Fill `out`; raises what verl raises."""
    from hydra import compose, initialize_config_module

    out["stage"] = "compose"
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[o for o in overrides if not o.startswith("hydra.")])

    out["stage"] = "validate_config"
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    import verl

    out["versions"] = {"verl": verl.__version__}
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    tests = (
        ("libraries", demand_fitting_trl),
        ("plug-ins", load_plugins),
        ("prompts", read_prompts),
        ("environment", grade_one),
    )
    for stage, test in tests:
        out["stage"] = stage
        test(config, request)

    out["stage"] = "done"
    gpus = int(config.trainer.n_gpus_per_node) * int(config.trainer.nnodes)
    tensor = int(config.actor_rollout_ref.rollout.tensor_model_parallel_size)
    if gpus % tensor:
        raise ValueError(f"n_gpus ({gpus}) must be divisible by rollout.tensor_model_parallel_size ({tensor})")


def demand_fitting_trl(config: Any, request: Path) -> None:
    """RuntimeError where a TRL is installed that verl's workers fail on: they patch its model with a value head."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("trl")
    except PackageNotFoundError:
        return
    with contextlib.suppress(ImportError):
        from trl.experimental.ppo import AutoModelForCausalLMWithValueHead

        return
    with contextlib.suppress(ImportError):
        from trl import AutoModelForCausalLMWithValueHead  # noqa: F401

        return
    raise RuntimeError(
        f"verl's environment holds TRL {found}, on which its workers fail minutes after the start (they import "
        "AutoModelForCausalLMWithValueHead from it)"
    )


def load_plugins(config: Any, request: Path) -> None:
    """Everything of ours that verl looks up by a name or loads from a path."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
    from verl.utils.import_utils import load_extern_object

    get_adv_estimator_fn(config.algorithm.adv_estimator)
    get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
    reward = config.reward
    load_extern_object(reward.custom_reward_function.path, reward.custom_reward_function.name)
    load_extern_object(reward.reward_manager.module.path, reward.reward_manager.name)
    sampler = config.trainer.v1.sampler.custom_sampler
    if sampler.path:
        load_extern_object(sampler.path, sampler.name)
    if loops := config.actor_rollout_ref.rollout.agent.agent_loop_config_path:
        from hydra.utils import get_class

        for loop in OmegaConf.load(loops):
            get_class(loop["_target_"])


def read_prompts(config: Any, request: Path) -> None:
    """ValueError where verl's agent loop refuses the policy's tokenizer, or its data set keeps too few prompts."""
    from transformers import AutoConfig
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.utils.tokenizer import hf_processor, hf_tokenizer
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    policy = config.actor_rollout_ref.model.path
    tokenizer, kind = hf_tokenizer(policy), AutoConfig.from_pretrained(policy).model_type
    create_continuous_token_builder(tokenizer, hf_model_type=kind, processor=hf_processor(policy))
    rows = RLHFDataset(config.data.train_files, tokenizer, config.data)
    if len(rows) < config.data.train_batch_size:
        raise ValueError(
            f"{len(rows)} prompts are no longer than data.max_prompt_length ({config.data.max_prompt_length}) tokens, "
            f"of a batch of data.train_batch_size ({config.data.train_batch_size})"
        )


def grade_one(config: Any, request: Path) -> None:
    """Answers to the first task, right, wrong and malformed ones, graded as in training; RuntimeError for a fault."""
    from evotrainer.extras.verl.scoring import ProcessGrader
    from evotrainer.extras.verl.training import VerlTraining

    grader = ProcessGrader(VerlTraining.read(request))
    environment = grader.environment()
    try:
        task = environment.tasks("train")[0]
        for text in ("0", *(demo[1] for demo in environment.demonstrations(3, 0))):
            episode = environment.reset(task, grader.recipe.knobs)
            environment.step([episode], [text], ["stop"])
            episode.done = True
            (score,) = environment.score([episode])
            if score.error_kind:
                raise RuntimeError(f"grading fails in verl's environment: {score.error_kind}: {score.error}")
    finally:
        environment.close()


def main() -> None:
    began = time.monotonic()
    out: dict[str, Any] = {"ok": False, "stage": "import", "error": None, "versions": {}}
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            check(Path(sys.argv[1]), sys.argv[2:], out)
            out["ok"] = True
        except Exception as e:
            causes: list[BaseException] = [e]
            while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 5:
                causes.append(cause)
            said_by = "; caused by ".join(f"{type(c).__name__}: {c}" if c is not e else str(c) for c in causes)
            out["error"] = {"type": type(e).__name__, "message": said_by}
    out["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
