"""What other people's files, names and queries may not do."""
