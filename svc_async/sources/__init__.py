"""Sources of rows: files of people, product feeds and tables, and one way to open each of them."""
