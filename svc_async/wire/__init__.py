"""The protocol of the platform as values and pure functions, without I/O."""
