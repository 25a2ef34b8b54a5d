"""The task file, its overrides, and what a run is checked against when it opens."""
