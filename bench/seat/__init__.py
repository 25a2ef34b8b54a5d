"""Who sits in the agent's seat, measured: several agents against one, and agents that cheat."""
