"""Runs actors and learners in threads and processes, with the counters and weights that they share.

Nothing here depends on an algorithm; ``parl.types`` has the protocols that an algorithm implements.
"""
