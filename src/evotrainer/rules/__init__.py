"""Rules that a run follows and `verify` applies again: each is one function of what was recorded, called by both."""
