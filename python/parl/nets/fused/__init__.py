"""Fast passes and updates of small dense networks on a CPU.

The forward and the backward pass of a network are one call each (:mod:`~parl.nets.fused.layers`,
:mod:`~parl.nets.fused.ensemble`), and the rest of an update is recorded once and replayed with numpy
(:mod:`~parl.nets.fused.update`). ``docs/decisions/0015-recorded-updates.md`` gives the reasons.
"""

from parl.nets.fused.ensemble import MLPEnsemble
from parl.nets.fused.layers import MLPWithHeads
from parl.nets.fused.numpy_mlp import NumpyMLP
from parl.nets.fused.rust_mlp import RustMLP
from parl.nets.fused.update import Update, may_replay

__all__ = ["MLPEnsemble", "MLPWithHeads", "NumpyMLP", "RustMLP", "Update", "may_replay"]
