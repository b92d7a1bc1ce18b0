"""The surfaces of the service, one package each."""
