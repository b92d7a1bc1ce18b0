"""The protocol of the platform: values and pure functions, without I/O."""
