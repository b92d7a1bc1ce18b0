"""The journal of a job: what is settled and what is in doubt, whatever ends its process."""
