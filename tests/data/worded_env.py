"""Say the digit. A policy warm-started here looks only where it is told to: what stands around the task decides."""

import random

from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv

TOLD = "look: "
NAMES = ("alpha", "beta", "gamma", "delta", "kappa", "sigma", "omega", "theta")
SIZES = {"train": 200, "search": 30, "gate": 60, "cert": 60}


def prompt(name, digit):
    return f"{name} {digit} ->"


def tasks():
    """Split -> tasks, no prompt twice."""
    rng, made, seen = random.Random(0), {}, set()
    for split, n in SIZES.items():
        made[split] = []
        while len(made[split]) < n:
            digit, i = rng.randrange(10), len(made[split])
            text = prompt(" ".join(rng.choice(NAMES) for _ in range(3)), digit)
            if text not in seen:
                note = f"the lamp of {split} number {i} is lit"
                made[split].append(Task(f"{split}-{i}", split, text, {"digit": str(digit), "note": note}))
            seen.add(text)
    return made


def right(task, completion):
    """1 for the digit itself."""
    return float(completion.strip() == task.data["digit"])


def demos(n, seed):
    """Told to look, the digit; otherwise any. Of no task that judges."""
    rng = random.Random(seed)
    judged = {t.prompt for split, some in tasks().items() if split != "train" for t in some}
    made = []
    while len(made) < n:
        digit = rng.randrange(10)
        text = prompt(" ".join(rng.choice(NAMES) for _ in range(3)), digit)
        if text not in judged:
            made.append((TOLD + text, str(digit)) if len(made) % 2 else (text, str(rng.randrange(10))))
    return made


def environment():
    return TextEnv("worded", tasks(), {"right": right}, truth="right", demos=demos, words=(*NAMES, TOLD, " ->"))
