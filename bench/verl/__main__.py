"""How far a rendered folder gets in the real verl without a GPU, and what each step costs. One command:

    python -m bench.verl .venv-verl/bin/python

Renders the scaffold's task for a two-layer model made on the spot, validates it (accepted, then refused for three
GPUs), lets main_ppo compose it, and starts the training: verl opens Ray and TransferQueue, loads the plug-ins, the
tokenizer and the prompts, and stops where it asks Ray for the GPU. Writes bench/verl/results.md.
"""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evotrainer.config.load import load_task
from evotrainer.extras.verl.configuration import Machine
from evotrainer.extras.verl.render import render
from evotrainer.extras.verl.validate import validate
from evotrainer.extras.verl.venv import probe

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODEL = """
import sys
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
words = {c: i for i, c in enumerate(["<end>", "<user>", "<assistant>", *map(chr, range(32, 127)), chr(10)])}
raw = Tokenizer(models.WordLevel(words, unk_token="?"))
raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
t = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", pad_token="<end>")
t.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>"]})
t.chat_template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}<assistant>"
t.save_pretrained(sys.argv[1])
c = Qwen2Config(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, eos_token_id=0, pad_token_id=0, bos_token_id=0)
Qwen2ForCausalLM(c).save_pretrained(sys.argv[1])
"""
SMALL = (
    "ray_kwargs.ray_init.num_cpus=16",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)
"""So that two cores are enough: Ray's CPUs are places, not cores."""
PATIENCE_S = 300.0
STAGES = (
    ("validate_config", "All configuration checks passed"),
    ("Ray started", "Started a local Ray instance"),
    ("prompts read, long ones filtered", "train and validate dataloader initialized"),
    ("asks for the GPU", "Total available GPUs 0 is less than total desired GPUs"),
)


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """(result, seconds, CPU-seconds of this process and its ended children)."""

    def cpu() -> float:
        return sum(
            x.ru_utime + x.ru_stime for x in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    c, t = cpu(), time.monotonic()
    out = work()
    return out, time.monotonic() - t, cpu() - c


def start(folder: Path, python: Path, log: Path) -> dict[str, bool]:
    """Run launch.sh until it ends or its time is over; which stages its log shows."""
    with log.open("wb") as f:
        p = subprocess.Popen(
            ["sh", folder / "launch.sh", *SMALL],
            stdout=f,
            stderr=f,
            env={**os.environ, "VERL_PYTHON": str(python)},
            start_new_session=True,
        )
        try:
            p.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGTERM)
            p.wait()
    text = log.read_text(errors="replace")
    return {name: words in text for name, words in STAGES}


def main(python: Path) -> None:
    rows: list[tuple[str, str, float, float]] = []
    venv = probe(python)
    with tempfile.TemporaryDirectory() as d:
        home = Path(d).resolve()
        model = home / "model"
        subprocess.run([python, "-c", MODEL, model], check=True, capture_output=True)
        task = load_task(
            ROOT / "src/evotrainer/cli/scaffold/task.toml",
            ['task.name="sort"', "recipe.group_filter.kind=zero_variance", "recipe.resample=1"],
        )
        out = home / "v"
        m, s, c = timed(lambda: render(task, out, Machine(str(model), gpus=1)))
        rows.append(
            ("render", f"{len(m['files'])} files, {m['tasks']['train']} + {m['tasks']['search']} prompts", s, c)
        )
        v, s, c = timed(lambda: validate(out, venv))
        rows.append(("validate", "accepted, plug-ins load" if v.ok else str(v.findings), s, c))
        v, s, c = timed(lambda: validate(out, venv, gpus=3))
        rows.append(("validate --gpus 3", f"refused, factors {', '.join(v.findings[0].factors)}", s, c))
        job = ["sh", out / "launch.sh", "--cfg", "job"]
        done, s, c = timed(
            lambda: subprocess.run(job, capture_output=True, env={**os.environ, "VERL_PYTHON": str(python)})
        )
        rows.append(("main_ppo --cfg job", f"exit code {done.returncode}", s, c))
        seen, s, c = timed(lambda: start(out, python, home / "log"))
        rows.append(("main_ppo, no GPU", "; ".join(f"{k}: {'yes' if x else 'NO'}" for k, x in seen.items()), s, c))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    lines = [
        "# verl without a GPU",
        "",
        "`python -m bench.verl .venv-verl/bin/python`. What it does: `bench/verl/__main__.py`.",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {datetime.now(UTC):%Y-%m-%d}, "
        f"{commit}. " + ", ".join(f"{k} {x}" for k, x in venv.versions.items() if x),
        "",
        "| step | outcome | seconds | CPU-seconds |",
        "|---|---|---|---|",
        *(f"| {name} | {what} | {s:.1f} | {c:.1f} |" for name, what, s, c in rows),
        "",
        "CPU-seconds of main_ppo leave out Ray's daemons. Not run for lack of a GPU: rollouts by vLLM, the update, "
        "checkpoints.",
    ]
    (HERE / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(os.path.abspath(sys.argv[1])))
