"""State: records, audiences, grants and media, without HTTP."""
