"""Follows a persistent stream of events through drops, stalls and refusals."""
