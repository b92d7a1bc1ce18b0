"""Follow a persistent stream of events across dropped, stalled and refused connections."""
