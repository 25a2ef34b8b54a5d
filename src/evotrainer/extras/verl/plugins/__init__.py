"""verl's plug-ins, which it loads by name; nothing of ours imports them."""
