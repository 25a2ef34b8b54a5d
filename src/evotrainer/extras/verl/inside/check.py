"""Composes a rendered folder's configuration and runs verl's own validate_config, without a GPU. Run by verl's Python:

    python check.py FOLDER OVERRIDE...

The last line of the output is a JSON object: stage, ok, error (type, message), unknown keys, warnings, versions,
seconds.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def leaves(tree: Any, at: str = "") -> Iterator[str]:
    """Dotted names of what a configuration sets; an empty table counts as a leaf."""
    if isinstance(tree, dict) and tree:
        for k, v in tree.items():
            yield from leaves(v, f"{at}.{k}" if at else str(k))
    else:
        yield at


def known(base: Any, key: str) -> bool:
    """Whether verl's own configuration has the key, or an open (empty) table above it."""
    node = base
    for part in key.split("."):
        if not isinstance(node, dict):
            return False
        if not node:
            return True
        if part not in node:
            return False
        node = node[part]
    return True


OPEN = ("ray_kwargs.ray_init.runtime_env.env_vars.",)
"""Tables that verl reads but its own configuration does not list."""


def check(folder: Path, overrides: list[str], out: dict[str, Any]) -> None:
    """Fill `out`; raises what verl raises."""
    import yaml
    from hydra import compose, initialize_config_dir, initialize_config_module
    from omegaconf import OmegaConf

    out["stage"] = "compose"
    with initialize_config_module("verl.trainer.config", version_base=None):
        base = OmegaConf.to_container(compose("ppo_trainer"), resolve=False)
    mine = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    mine = {k: v for k, v in mine.items() if k not in ("hydra", "defaults")}
    out["unknown"] = [k for k in leaves(mine) if not known(base, k) and not k.startswith(OPEN)]
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("config", overrides=overrides)

    out["stage"] = "validate_config"
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    import verl

    out["versions"] = {"verl": verl.__version__}
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    tests = (
        ("libraries", demand_fitting_trl),
        ("plug-ins", load_plugins),
        ("data", read_columns),
        ("environment", grade_one),
    )
    for stage, test in tests:
        out["stage"] = stage
        test(config, folder)

    out["stage"] = "done"
    out["gpus"] = int(config.trainer.n_gpus_per_node) * int(config.trainer.nnodes)
    tensor = int(config.actor_rollout_ref.rollout.tensor_model_parallel_size)
    if out["gpus"] % tensor:
        raise ValueError(f"n_gpus ({out['gpus']}) must be divisible by rollout.tensor_model_parallel_size ({tensor})")


def demand_fitting_trl(config: Any, folder: Path) -> None:
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


def load_plugins(config: Any, folder: Path) -> None:
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


def read_columns(config: Any, folder: Path) -> None:
    """ValueError where the prompts lack a column."""
    import pyarrow.parquet as pq

    for name in (config.data.train_files, config.data.val_files):
        missing = {"data_source", "prompt", "reward_model", "extra_info"} - set(pq.read_schema(name).names)
        if missing:
            raise ValueError(f"{name} lacks the columns {sorted(missing)}")


def grade_one(config: Any, folder: Path) -> None:
    """Answers to the first task, right, wrong and malformed ones, graded as in training; RuntimeError for a fault."""
    import pyarrow.parquet as pq

    from evotrainer.extras.verl.scoring import ProcessGrader

    grader = ProcessGrader(folder)
    first = pq.read_table(config.data.train_files, columns=["reward_model"]).slice(0, 1).to_pylist()[0]
    environment = grader.environment()
    try:
        task = grader.task("train", first["reward_model"]["ground_truth"])
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
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder / "plugins"))
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "evo_advantage"
    out: dict[str, Any] = {"ok": False, "stage": "import", "unknown": [], "error": None, "versions": {}}
    captured = io.StringIO()
    with warnings.catch_warnings(record=True) as seen, contextlib.redirect_stdout(captured):
        warnings.simplefilter("always", UserWarning)
        try:
            check(folder, sys.argv[2:], out)
            out["ok"] = not out["unknown"]
        except Exception as e:
            causes: list[BaseException] = [e]
            while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 5:
                causes.append(cause)
            said_by = "; caused by ".join(f"{type(c).__name__}: {c}" if c is not e else str(c) for c in causes)
            out["error"] = {"type": type(e).__name__, "message": said_by}
    lines = [*captured.getvalue().splitlines(), *(str(w.message) for w in seen if w.category is UserWarning)]
    out["notices"] = [x for x in lines if "NOTICE" in x or "WARNING" in x]
    out["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
