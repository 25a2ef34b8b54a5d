"""EvoTrainer: reinforcement learning for LLMs that runs itself and proves every decision it took."""

__all__ = ["__version__"]

__version__ = "0.1.0"
