"""Packing: encoded rows into operations, operations into requests. No I/O."""
