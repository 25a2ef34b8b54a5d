"""verl's plug-ins. `evotrainer verl render` copies them into a run folder; nothing of ours imports them."""
