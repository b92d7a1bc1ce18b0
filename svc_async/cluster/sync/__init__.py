"""Syncs on a cluster: the workers read and hash a source, and the process that began the sync compares and sends."""
