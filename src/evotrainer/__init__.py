"""EvoTrainer: reinforcement learning for LLMs that runs itself and proves every decision it took."""

__version__ = "0.1.0"
