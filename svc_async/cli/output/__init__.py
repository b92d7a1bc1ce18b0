"""What the command prints: lines, bars, JSON and the log of the library."""
