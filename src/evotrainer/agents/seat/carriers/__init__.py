"""Ways from a run to whoever sits in its seat, and back."""
