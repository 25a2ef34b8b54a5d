"""Grading across a boundary: the tests run in one shell, the policy's code in another;
only values travel between them."""
