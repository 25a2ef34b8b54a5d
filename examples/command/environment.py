"""A task of your own: tasks with splits, reward functions, demonstrations. Change anything, then run it again.

The example: sort the letters of a word. The policy learns a first, sloppy way from the demonstrations; RL does the
rest. `right_letters` is what one might reward at first, `sorted_word` is what is really wanted.

This file is trusted: it runs with your rights, outside of the sandbox, and its `truth` decides what is correct. What a
policy may use as a shortcut, and the knob that closes it, belongs into `capabilities`: without any, nothing can be
audited, and a gain is certified with a caveat.
"""

import random

from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv

LETTERS = "abcdefgh"
SIZES = {"train": 400, "search": 100, "gate": 150, "cert": 150}


def make_tasks() -> dict[str, list[Task]]:
    """Splits that share no word: each word is drawn once."""
    return words_of(list(SIZES), random.Random(7), set())


def draw(seed: str) -> dict[str, list[Task]]:
    """Gate and cert of a seed: every run draws its own, so that no run is judged on tasks that another one saw."""
    known = {t.id.partition("-")[2] for split in ("train", "search") for t in make_tasks()[split]}
    return words_of(["gate", "cert"], random.Random(seed), known)


def words_of(splits: list[str], rng: random.Random, seen: set[str]) -> dict[str, list[Task]]:
    """Tasks of some splits, without words in `seen`."""
    out: dict[str, list[Task]] = {}
    for split in splits:
        out[split] = []
        while len(out[split]) < SIZES[split]:
            word = "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, 5)))
            if word in seen:
                continue
            seen.add(word)
            answer = "".join(sorted(word))
            out[split].append(Task(f"{split}-{word}", split, f"sort {word}\n", {"answer": answer}))
    return out


def sorted_word(task: Task, completion: str) -> float:
    """1 where the completion is the word's letters in order."""
    return float(completion.strip() == task.data["answer"])


def right_letters(task: Task, completion: str) -> float:
    """1 where the completion has the word's letters, in any order."""
    return float(sorted(completion.strip()) == sorted(task.data["answer"]))


def brevity(task: Task, completion: str) -> float:
    """1 minus a tenth per character."""
    return max(0.0, 1 - len(completion) / 10)


def demonstrations(n: int, seed: int) -> list[tuple[str, str]]:
    """A sloppy teacher: in about half of the words, two neighbours are swapped. Train words only."""
    rng = random.Random(seed)
    words = make_tasks()["train"]
    out = []
    for _ in range(n):
        task = rng.choice(words)
        answer = list(task.data["answer"])
        if rng.random() < 0.5:
            i = rng.randrange(len(answer) - 1)
            answer[i], answer[i + 1] = answer[i + 1], answer[i]
        out.append((task.prompt, "".join(answer)))
    return out


def environment() -> TextEnv:
    """What `environment.name` in task.toml points to."""
    return TextEnv(
        name="sort-letters",
        tasks=make_tasks(),
        rewards={"sorted_word": sorted_word, "right_letters": right_letters, "brevity": brevity},
        truth="sorted_word",
        proxy="right_letters",
        demos=demonstrations,
        words=["sort "],
        draw=draw,
    )
