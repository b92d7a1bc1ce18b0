"""Users of lists: identifiers are normalised, hashed and encoded as JSON."""
