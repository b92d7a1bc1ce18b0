"""Products of a catalog."""
