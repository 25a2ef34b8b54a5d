"""Two reward functions as TRL takes them. The same ones train (in TRL's script) and prove (in `[environment]`)."""


def sorted_word(prompts, completions, answer=None, data=None, **columns):
    """1 where the completion is the answer: what is really wanted."""
    return [float(c.strip() == a) for c, a in zip(completions, answers(answer, data), strict=True)]


def in_place(prompts, completions, answer=None, data=None, **columns):
    """Share of the answer's letters that stand in their place."""
    pairs = zip(completions, answers(answer, data), strict=True)
    return [sum(x == y for x, y in zip(c.strip(), a, strict=False)) / max(len(c.strip()), len(a)) for c, a in pairs]


def answers(answer, data):
    """The column `answer` of rows.jsonl: in {tasks} it stands inside `data`."""
    return answer or [row["answer"] for row in data]
