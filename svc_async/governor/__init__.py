"""Rate limits: counting windows, the known limits, and the line in which requests wait for their turn."""
