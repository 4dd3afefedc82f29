"""Batches of observations of every kind, for tests of algorithms that learn from a replay."""

from types import SimpleNamespace

import numpy as np
import torch

from parl.nets import tensors_of
from parl.types import EnvSpec

BOX = EnvSpec((5,), "float32", (2,), "float32", None, "next_step", (-1.0, -1.0), (1.0, 1.0))
FOUR = EnvSpec((5,), "float32", (), "int64", 4, "next_step")
PARTS = (("far", (2,), "float32"), ("near", (3, 1), "float32"))
CAMERA = (("camera", (2, 40, 36), "uint8"), ("speed", (3,), "float32"))


def observations(parts, size, rng):
    made = {}
    for name, shape, dtype in parts:
        if dtype == "uint8":
            made[name] = rng.integers(0, 256, (size, *shape), np.uint8)
        else:
            made[name] = rng.normal(size=(size, *shape)).astype(np.float32)
    return made


def make_batch(spec, obs, next_obs, size=16):
    rng = np.random.default_rng(1)
    action = rng.integers(0, 4, size) if spec.num_actions else rng.uniform(-1, 1, (size, 2))

    return SimpleNamespace(
        obs=tensors_of(obs),
        next_obs=tensors_of(next_obs),
        action=torch.from_numpy(action if spec.num_actions else action.astype(np.float32)),
        reward=torch.from_numpy(rng.normal(size=size).astype(np.float32)),
        discount=torch.full((size,), 0.9),
        weights=torch.from_numpy(rng.uniform(0.1, 1, size).astype(np.float32)),
        tickets=None,
    )
