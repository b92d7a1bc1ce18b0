"""Lists of users: custom audiences and do-not-reach lists."""
