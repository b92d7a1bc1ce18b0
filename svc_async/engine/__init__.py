"""The engine of a session: transport, retries, the send pipeline and paging."""
