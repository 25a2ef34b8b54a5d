"""Speed of the trl trainer beside plain TRL."""
