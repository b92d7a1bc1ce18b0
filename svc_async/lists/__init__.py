"""Lists that a caller changes: custom audiences, do-not-reach lists and the products of a catalog."""
