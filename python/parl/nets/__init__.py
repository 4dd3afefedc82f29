"""Networks: torsos, heads, encoders, and flat buffers of parameters."""

from parl.nets.ensemble import Ensemble
from parl.nets.flat import FlatModule, copy_named, flatten, named_weights
from parl.nets.heads import ActionHead, DuelingHead, FractionEmbedding, select_actions
from parl.nets.noisy import NoisyLinear, resample_noise, silence_noise
from parl.nets.observations import (
    Encoder,
    check_actions,
    check_observations,
    check_stacked,
    check_vector,
    count_of,
    tensors_of,
    torso_for,
    warn_unreached_bounds,
)
from parl.nets.torsos import IMAGE_TORSOS, MLP, FrameDeltasMLP, ImpalaResNet, NatureCNN, SmallCNN, make_torso

__all__ = [
    "IMAGE_TORSOS",
    "MLP",
    "ActionHead",
    "DuelingHead",
    "Encoder",
    "Ensemble",
    "FlatModule",
    "FractionEmbedding",
    "FrameDeltasMLP",
    "ImpalaResNet",
    "NatureCNN",
    "NoisyLinear",
    "SmallCNN",
    "check_actions",
    "check_observations",
    "check_stacked",
    "check_vector",
    "copy_named",
    "count_of",
    "flatten",
    "make_torso",
    "named_weights",
    "resample_noise",
    "select_actions",
    "silence_noise",
    "tensors_of",
    "torso_for",
    "warn_unreached_bounds",
]
