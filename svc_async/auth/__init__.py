"""Who is calling: credentials, and the headers that prove it."""
