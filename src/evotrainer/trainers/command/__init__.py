"""The command trainer: any training script is a trial (docs/command-trainer.md)."""
