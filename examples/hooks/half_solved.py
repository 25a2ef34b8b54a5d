def select(tasks, history):
    """Tasks that came least often, of these the ones that were half solved when they came last."""
    came = [0] * len(tasks)
    rate = [0.5] * len(tasks)
    for task, _step, solved in history["groups"]:
        came[task] += 1
        rate[task] = solved
    left = sorted(set(range(len(tasks))) - set(history["taken"]))
    left.sort(key=lambda i: (came[i], abs(rate[i] - 0.5), i))
    return left[: history["n"]]
