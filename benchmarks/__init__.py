"""What the SDK costs, beside the least that plain code would cost: run `python -m benchmarks`."""
