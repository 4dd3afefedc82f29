"""Several machines or torchrun processes: gradient averaging, Ray actors."""
