"""What rejected requests mean: the cause and the next step of each reason, and their lines in the log."""
