"""What people run: where rows come from and what is done with them."""
