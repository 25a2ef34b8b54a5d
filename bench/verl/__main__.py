"""How far a trial by verl gets in the real verl without a GPU, and what each step costs. One command:

    python -m bench.verl .venv-verl/bin/python

The scaffold's task, for a two-layer model made on the spot: its check by verl (accepted, then refused for three GPUs),
and the start of the trial: verl opens Ray and TransferQueue, loads the plug-ins, the tokenizer and the prompts, and
stops where it asks Ray for the GPU. Writes bench/verl/results.md.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.errors import EvoTrainerError
from evotrainer.trainers import check_recipes
from evotrainer.trainers.base import Identity, TrainRequest
from evotrainer.trainers.command.trainer import CommandTrainer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODEL = """
import sys
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, LlamaConfig, LlamaForCausalLM
words = {c: i for i, c in enumerate(["<end>", "<user>", "<assistant>", *map(chr, range(32, 127)), chr(10)])}
raw = Tokenizer(models.WordLevel(words, unk_token="?"))
raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
t = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<end>")
t.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>"]})
t.chat_template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}<assistant>"
t.save_pretrained(sys.argv[1])
c = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=2, max_position_embeddings=512, eos_token_id=0, pad_token_id=0, bos_token_id=0)
LlamaForCausalLM(c).save_pretrained(sys.argv[1])
"""
SMALL = (
    "ray_kwargs.ray_init.num_cpus=16",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)
"""So that two cores are enough: Ray's CPUs are places, not cores."""
STAGES = (
    ("validate_config", "All configuration checks passed"),
    ("Ray started", "Started a local Ray instance"),
    ("prompts read, long ones filtered", "train and validate dataloader initialized"),
    ("asks for the GPU", "Total available GPUs 0 is less than total desired GPUs"),
)


def options(python: Path, *settings: str) -> dict[str, Any]:
    """`[trainer.options]` of a trial by verl."""
    words = ["{request}", *SMALL, *settings]
    verl = [str(python), "-m", "evotrainer.extras.verl"]
    return {"map": "verl", "command": [*verl, *words], "check": [*verl, "--check", *words], "restarts": 0}


def asked(python: Path, home: Path, *overrides: str, **watched: Any) -> TrainRequest:
    """A training of the scaffold's task, for a model made on the spot: heads of 32, the least for vLLM on a CPU."""
    subprocess.run([python, "-c", MODEL, home / "model"], check=True, capture_output=True)
    task = load_task(ROOT / "src/evotrainer/cli/scaffold/task.toml", ['task.name="sort"', *overrides])
    names = Identity("bench", "b0", 1), task.recipe, home / "model", home / "trial"
    return TrainRequest(*names, environment=task.environment, **watched)


def timed(work: Callable[[], Any]) -> tuple[str, float]:
    """(what came of it, seconds)."""
    began = time.monotonic()
    try:
        work()
        said = "accepted"
    except EvoTrainerError as e:
        said = str(e)
    return said, time.monotonic() - began


def main(python: Path) -> None:
    rows: list[tuple[str, str, float]] = []
    with tempfile.TemporaryDirectory() as d:
        home = Path(d).resolve()
        request = asked(python, home, "recipe.group_filter.kind=zero_variance", "recipe.resample=1")
        with contextlib.closing(open_environment(request.environment)) as environment:
            for name, settings in (("check", ()), ("check, 3 GPUs", ("trainer.n_gpus_per_node=3",))):
                own = options(python, *settings)
                check_recipes("command", own, [request.recipe])
                rows.append((name, *timed(lambda own=own: CommandTrainer(own).check(request, environment))))  # type: ignore[misc]
            trainer = CommandTrainer(options(python))
            _, s = timed(lambda: trainer.train(request, environment, lambda _: None, lambda _: None))
        log = (home / "trial" / "command" / "log.txt").read_text(errors="replace")
        seen = "; ".join(f"{name}: {'yes' if words in log else 'NO'}" for name, words in STAGES)
        rows.append(("the trial, no GPU", seen, s))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout
    lines = [
        "# verl without a GPU",
        "",
        "`python -m bench.verl .venv-verl/bin/python`. What it does: `bench/verl/__main__.py`.",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {datetime.now(UTC):%Y-%m-%d}, "
        f"{commit.strip()}.",
        "",
        "| step | outcome | seconds |",
        "|---|---|---|",
        *(f"| {name} | {what} | {s:.1f} |" for name, what, s in rows),
        "",
        "Not run for lack of a GPU: rollouts by vLLM, the update, checkpoints.",
    ]
    (HERE / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(os.path.abspath(sys.argv[1])))
