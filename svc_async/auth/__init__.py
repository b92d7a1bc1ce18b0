"""Credentials, and the `Authorization` headers built from them."""
