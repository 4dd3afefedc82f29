"""Actors collect rollouts; the learner learns from each rollout and discards it."""
