"""What is written down: rollouts, recipes, events, ledger, stores. It imports `errors` and nothing else of ours."""
