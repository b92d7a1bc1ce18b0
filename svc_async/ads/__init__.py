"""The advertising API: one module per family, with its enums, records, routes and service class."""
