"""Packages that only cli and api import, and only when needed: export to Hugging Face, trackers, verl."""
