"""Algorithms, one readable file each: settings, networks, loss, priorities."""
