"""Job specifications and reports."""
