"""HTTP: the server, request validation, rendering, authentication, rate limits and faults."""
