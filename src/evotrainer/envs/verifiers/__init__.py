"""Environments of verifiers (v1): tasks of one turn scored here, and episodes that verifiers plays."""
