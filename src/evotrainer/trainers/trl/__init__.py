"""Trainer of causal language models of the Hugging Face form, through TRL's GRPOTrainer (docs/trainers.md).

Importing this package loads no machine-learning library.
"""
