"""The state of a list as pages of packed columns."""
