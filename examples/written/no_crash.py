def reward(rollout):
    """1 when no recorded run of the program ended in an error or a timeout."""
    return float(all(t.get("status") == "ok" for t in rollout["tests"]))
