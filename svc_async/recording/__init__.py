"""What a session sends and is answered, in a file without secrets and personal values."""
