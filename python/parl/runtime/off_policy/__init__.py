"""Actors write into a replay, learners sample from it."""
