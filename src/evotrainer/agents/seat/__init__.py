"""The seat: a model, a coding agent, a program or a person in the agent's place, next to the statistical agent."""
