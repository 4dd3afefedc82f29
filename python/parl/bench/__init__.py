"""Benchmarks of ``parl bench``, measured on this machine: frame rates and batching strategies."""
