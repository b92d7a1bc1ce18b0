"""What the log of a receiver says, and how often."""
