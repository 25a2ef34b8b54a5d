"""A training script that knows nothing of EvoTrainer: digits backwards, by random search on the weights (numpy alone).

What it does wrong on demand: `--does` names it.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

p = argparse.ArgumentParser()
p.add_argument("--model", type=Path)
p.add_argument("--data", type=Path)
p.add_argument("--out", type=Path)
p.add_argument("--seed", type=int, default=0)
p.add_argument("--steps", type=int, default=3)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--does", default="")
p.add_argument("--resume", type=Path)
p.add_argument("--pause", type=float, default=0.0)
p.add_argument("--step-name", default="step", help="what it calls its steps")
a = p.parse_args()

if a.does == "fails":
    sys.exit("CUDA out of memory")
if a.does == "ignores SIGTERM":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if a.does == "leaves children":
    code = "import os, sys, time; os.setsid(); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code])
    time.sleep(0.3)
if a.does == "prints":
    for n in range(1_000_000):
        print("line", n)
if a.does in ("hangs", "ignores SIGTERM"):
    print("waiting for a server", flush=True)
    time.sleep(600)

if a.does == "hangs-3-s":
    time.sleep(4)

import numpy as np  # noqa: E402  (what hangs or fails does so at once)
from safetensors.numpy import load_file, save_file  # noqa: E402

if a.does == "trains-nothing-too" and not any(a.model.iterdir()):
    (a.out / "policy").mkdir(parents=True, exist_ok=True)
    save_file({"w": np.zeros(1)}, a.out / "policy" / "model.safetensors")
    for name in ("rollouts.jsonl", "metrics.jsonl"):
        row = {"step": 1, "group": "1", "prompt": "?", "completion": "!", "reward": 0.0}
        (a.out / name).write_text(json.dumps(row) + "\n")
    sys.exit()
weights = load_file(a.model / "model.safetensors")
begun, rng = 0, np.random.default_rng(a.seed)
if a.resume:
    weights, begun = load_file(a.resume / "w.safetensors"), int((a.resume / "step").read_text())
    for _ in range(begun):  # what was drawn before
        [rng.standard_normal(w.shape) for w in weights.values()]
prompts = [json.loads(x)["prompt"] for x in a.data.read_text().splitlines()]
a.out.mkdir(parents=True, exist_ok=True)


def opened(name):
    path = a.out / name
    kept = [x for x in path.read_text().splitlines() if json.loads(x)[a.step_name] <= begun] if path.exists() else []
    path.write_text("".join(x + "\n" for x in kept))
    return path.open("a")


rollouts, metrics = opened("rollouts.jsonl"), opened("metrics.jsonl")
for step in range(begun + 1, a.steps + 1):
    draw, rewards = random.Random(f"{a.seed}/{step}"), []
    for n, prompt in enumerate(draw.sample(prompts, 4)):
        for _ in range(4):
            said = "".join(draw.choice("0123456789") for _ in range(3))
            gold = prompt.split()[1][::-1]
            rewards.append(sum(x == y for x, y in zip(said, gold, strict=True)) / 3)
            row = {a.step_name: step, "group": f"{step}/{n}", "prompt": prompt, "completion": said}
            row["reward"] = rewards[-1]
            rollouts.write(json.dumps(row) + "\n")
    rollouts.flush()
    weights = {k: w + (a.lr * rng.standard_normal(w.shape)).astype(w.dtype) for k, w in weights.items()}
    metrics.write(json.dumps({a.step_name: step, "reward/mean": float(np.mean(rewards)), "loss": 1 / step}) + "\n")
    metrics.flush()
    checkpoint = a.out / "checkpoints" / f"step-{step}"
    (part := checkpoint.with_name("part")).mkdir(parents=True, exist_ok=True)
    save_file(weights, part / "w.safetensors")
    (part / "step").write_text(str(step))
    shutil.rmtree(checkpoint, ignore_errors=True)
    os.replace(part, checkpoint)
    time.sleep(a.pause)
    if a.does == "is killed" and step == 2 and not a.resume:
        os.kill(os.getpid(), signal.SIGKILL)
if a.does == "writes half a line":
    rollouts.write('{"step": 3, "group": "3/9", "prom')
    metrics.write('{"step": 4, "rew')
if a.does != "saves no policy":
    shutil.copytree(a.model, a.out / "policy", dirs_exist_ok=True)
    save_file(weights, a.out / "policy" / "model.safetensors", metadata={"format": "pt"})
