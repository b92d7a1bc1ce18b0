"""Jobs of commands on a cluster."""
