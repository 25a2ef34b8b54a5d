"""Trains what a request.json asks for with verl. Run by verl's Python, as a trial's command:

    python -m evotrainer.extras.verl REQUEST SETTING...     # verl's own settings, key=value
    python -m evotrainer.extras.verl --check REQUEST SETTING...     # trains nothing; needs no GPU

`--observation-tokens N`: room for the environment's answer to one turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from evotrainer.errors import ConfigError, EvoTrainerError, install
from evotrainer.extras.verl import VERSION
from evotrainer.extras.verl.training import OBSERVATION_TOKENS, VerlTraining
from evotrainer.records.output import print


def run(module: str, *words: str, **variables: str) -> int:
    """Exit code of a module of verl."""
    return subprocess.run([sys.executable, "-m", module, *words], env={**os.environ, **variables}).returncode


def train(t: VerlTraining, settings: Sequence[str]) -> int:
    """Train, or go on from the last checkpoint; the policy as a Hugging Face folder, or its adapters."""
    t.drop_rollouts_behind(t.checkpoint())
    (t.out / "metrics").mkdir(parents=True, exist_ok=True)
    variables = {**t.variables(), "HYDRA_FULL_ERROR": "1", "PYTHONUNBUFFERED": "1"}
    if code := run("verl.trainer.main_ppo", *settings, **variables):
        if code < 0:
            os.kill(os.getpid(), -code)  # a signal ended it: so does the same one us
        return code
    policy, actor = t.out / "policy", t.out / "checkpoints" / f"global_step_{t.checkpoint()}" / "actor"
    shutil.rmtree(policy, ignore_errors=True)
    merge = ("merge", "--backend", "fsdp", "--local_dir", str(actor), "--target_dir", str(policy))
    if (code := run("verl.model_merger", *merge)) == 0 and (adapters := policy / "lora_adapter").is_dir():
        adapters.rename(t.out / "adapters")
        shutil.rmtree(policy)
        (t.out / "adapters").rename(policy)
    return code


def check(t: VerlTraining, settings: Sequence[str]) -> int:
    """Let verl compose and validate the settings, load the plug-ins and grade an answer."""
    from evotrainer.extras.verl.complaints import explain

    script = Path(__file__).parent / "inside" / "check.py"
    done = subprocess.run(
        [sys.executable, "-P", script, str(t.request), *settings],
        env={**os.environ, **t.variables()}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = explain(done.stdout)
    print(found)
    return 0 if found.ok else ConfigError.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    ask = argparse.ArgumentParser(prog="python -m evotrainer.extras.verl", description=__doc__)
    ask.add_argument("request", type=Path)
    ask.add_argument("settings", nargs="*", metavar="key=value")
    ask.add_argument("--check", action="store_true")
    ask.add_argument("--observation-tokens", type=int, default=OBSERVATION_TOKENS)
    given = ask.parse_intermixed_args(argv)
    try:
        demand_verl()
        t = VerlTraining.read(given.request)
        if (t.policy / "adapter_config.json").is_file():
            raise ConfigError(f"{t.policy} is adapters; verl begins with a whole model: give one in policy.base")
        settings = t.settings(given.settings, given.observation_tokens)
        if t.write_prompts() < t.recipe.prompts_per_step:
            raise ConfigError("fewer train tasks than recipe.prompts_per_step: verl would never fill a batch")
        return (check if given.check else train)(t, settings)
    except EvoTrainerError as e:
        print(e, file=sys.stderr)
        return e.exit_code


def demand_verl() -> None:
    """ConfigError where this Python has no verl, or another version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("verl")
    except PackageNotFoundError:
        found = "none"
    if found != VERSION:
        how = f"{Path(sys.executable).parent}/{install('verl')}"
        raise ConfigError(f"{sys.executable} has verl {found}, {VERSION} is needed: {how}, or name another Python")


if __name__ == "__main__":
    raise SystemExit(main())
