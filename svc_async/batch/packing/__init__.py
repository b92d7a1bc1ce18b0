"""Packs encoded rows into requests, by count and by exact bytes; no I/O."""
