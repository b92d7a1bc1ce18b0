"""What the demo uploads."""
