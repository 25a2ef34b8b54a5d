"""A reward function as users of TRL write it."""


def digits(prompts, completions, **_):
    gold = [p.split()[1][::-1] for p in prompts]
    return [sum(x == y for x, y in zip(c, g, strict=False)) / len(g) for c, g in zip(completions, gold, strict=True)]
