"""The leak: what reinforcement learning finds where the history of a repository holds the fix."""
