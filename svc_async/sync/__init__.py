"""Diff sync: makes a list equal to a file by sending only what changed."""
