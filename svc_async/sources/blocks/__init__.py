"""Bytes and text of a source, in blocks of bounded size: below rows and columns, whatever their format."""
