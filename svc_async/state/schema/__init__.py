"""The tables and functions of the schema, one file for each kind of state."""
