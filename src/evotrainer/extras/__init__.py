"""Rooms that only cli and api enter, and only when asked: export to Hugging Face, trackers, verl."""
