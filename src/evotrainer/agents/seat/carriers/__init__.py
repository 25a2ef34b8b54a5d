"""Carriers of a seat: a program, an HTTP endpoint, a queue of files, a recorded run."""
