"""Batch uploaders: any number of rows, cut into requests, sent in order and accounted for to the last row."""
