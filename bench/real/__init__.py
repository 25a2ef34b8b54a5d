"""Benchmarks with a real language model (`examples/real`)."""
