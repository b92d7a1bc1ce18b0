"""The engine of a session: one exchange, retries, the send pipeline and paging."""
