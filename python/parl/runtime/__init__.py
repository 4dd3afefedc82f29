"""Who runs where: actors, learners, the counters and weights they share, and the two schedules.

Nothing here knows an algorithm; see ``parl.types`` for what is asked of one.
"""
