"""The receiver behind servers: what they hand over and take back."""
