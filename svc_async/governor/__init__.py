"""Rate limits: the known limits, counting windows, and the fair queue in which requests wait for a slot."""
