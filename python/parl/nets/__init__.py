"""Networks: torsos, heads, and all parameters of a module in one flat buffer."""

from parl.nets.flat import FlatModule, flatten
from parl.nets.heads import DuelingHead
from parl.nets.torsos import MLP, NatureCNN, make_torso

__all__ = ["MLP", "DuelingHead", "FlatModule", "NatureCNN", "flatten", "make_torso"]
