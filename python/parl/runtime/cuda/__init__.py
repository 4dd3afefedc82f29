"""Environments, policy, data and learner on one CUDA device, in one process."""
