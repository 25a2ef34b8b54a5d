"""CPU-scale trainer. Importing this package loads no machine-learning library."""
