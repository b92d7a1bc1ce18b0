"""A page that shows a job while it runs in another process."""
