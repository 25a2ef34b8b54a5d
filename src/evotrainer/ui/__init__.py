"""The page that a team keeps open: runs, a run, a branch, its rollouts, in the browser. It reads ledgers and stores."""
