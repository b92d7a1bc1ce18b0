"""The journal of a job: what is settled and what is in doubt, in one SQLite file."""
