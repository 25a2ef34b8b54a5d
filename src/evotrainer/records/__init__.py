"""What is written down: rollouts, recipes, events, ledger, stores. Imports nothing of ours but errors."""
