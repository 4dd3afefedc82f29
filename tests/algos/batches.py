"""Batches of observations of every kind, for tests of algorithms that learn from a replay."""

from types import SimpleNamespace

import numpy as np
import torch

from parl.nets import tensors_of
from parl.types import EnvSpec

BOX = EnvSpec((5,), "float32", (2,), "float32", None, "next_step", (-1.0, -1.0), (1.0, 1.0))
FOUR = EnvSpec((5,), "float32", (), "int64", 4, "next_step")
# Of `random_batch` and `discrete_batch`.
DISCRETE = EnvSpec((3,), "float32", (), "int64", 4, "next_step")
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


def random_batch(seed, size, action_of):
    """Arrays by name and the batch of these; ``action_of`` draws the actions from the generator."""
    rng = np.random.default_rng(seed)
    action = action_of(rng)
    arrays = {
        "obs": rng.normal(size=(size, 3)).astype(np.float32),
        "action": action,
        "reward": (3 * rng.normal(size=size)).astype(np.float32),
        # Terminated rows have discount 0; truncated and other ones gamma^1 ... gamma^5.
        "discount": np.where(rng.random(size) < 0.25, 0, 0.97 ** rng.integers(1, 6, size)).astype(np.float32),
        "next_obs": rng.normal(size=(size, 3)).astype(np.float32),
        "weights": rng.uniform(0.1, 1, size).astype(np.float32),
    }
    return arrays, SimpleNamespace(**{k: torch.from_numpy(v) for k, v in arrays.items()}, tickets=None)


def discrete_batch(seed, size=32):
    return random_batch(seed, size, lambda rng: rng.integers(0, 4, size))


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
