"""The three layers of evidence: what was scored, whether the group gave a gradient, what the policy did."""
