"""One module for each command group of svc-async."""
