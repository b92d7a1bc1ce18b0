"""The tasks of a cluster, and the state that those of a worker process share."""
