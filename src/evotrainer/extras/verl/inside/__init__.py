"""Scripts that verl's own Python runs for us; nothing of ours imports them."""
