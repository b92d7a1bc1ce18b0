"""What runs on the workers of a cluster."""
