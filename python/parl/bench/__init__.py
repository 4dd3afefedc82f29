"""What ``parl bench`` measures on the machine it runs on: rates, and what batching strategies trade."""
