"""Harnesses that verifiers finds by the names of their modules; the worker puts this folder on its path."""
