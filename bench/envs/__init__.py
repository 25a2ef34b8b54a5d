"""Environments: what their tasks and grading cost."""
