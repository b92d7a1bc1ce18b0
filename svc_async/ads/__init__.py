"""The advertising API: one module a family, with its enums, records, rows and service."""
