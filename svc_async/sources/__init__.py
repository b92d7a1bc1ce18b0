"""Sources of rows: user files, product feeds and tables, with one way to open each of them."""
