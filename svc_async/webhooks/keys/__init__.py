"""The keys of events, and what keeps order by key: a lock and a queue."""
