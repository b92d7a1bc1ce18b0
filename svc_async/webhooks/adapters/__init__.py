"""Adapters that serve a receiver with a web framework."""
