"""The data model: rollouts, recipes, events, ledger, stores. It imports `errors` and nothing else of ours."""
