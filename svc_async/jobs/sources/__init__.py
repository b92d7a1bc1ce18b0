"""Where rows come from: files of people, feeds of products, tables, and one way to open each of them."""
