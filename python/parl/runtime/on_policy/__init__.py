"""Actors collect rollouts, the learner learns from each once."""
