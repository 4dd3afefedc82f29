"""What makes small dense networks fast on a CPU; nothing outside :mod:`parl.nets` knows how.

A network's forward and its backward pass are one call each (:mod:`~parl.nets.fused.layers`,
:mod:`~parl.nets.fused.ensemble`), and the rest of an update is recorded once and replayed as numpy
(:mod:`~parl.nets.fused.update`). ``docs/decisions/0015-recorded-updates.md`` says why.
"""

from parl.nets.fused.ensemble import MLPEnsemble
from parl.nets.fused.layers import MLPWithHeads
from parl.nets.fused.numpy_mlp import NumpyMLP
from parl.nets.fused.rust_mlp import RustMLP
from parl.nets.fused.update import Update

__all__ = ["MLPEnsemble", "MLPWithHeads", "NumpyMLP", "RustMLP", "Update"]
