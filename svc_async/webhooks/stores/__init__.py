"""What a receiver remembers and stores: handled events, and events that are not handled yet."""
