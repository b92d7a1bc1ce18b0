"""What the sandbox sends by itself: events, webhook deliveries and streams."""
