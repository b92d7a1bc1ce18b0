"""Compares the SDK with the least that plain code would cost: run `python -m benchmarks`."""
