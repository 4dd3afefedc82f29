"""Random rollouts for the tests of several algorithms."""

import numpy as np
import torch

from parl.nets.fused import Update
from parl.types import EnvSpec, Rollout

SPEC = EnvSpec((3,), "float32", (), "int64", 4, "next_step")
BOX = EnvSpec((3,), "float32", (2,), "float32", None, "next_step")
COLUMNS = ("reward", "terminated", "ended", "valid")


def no_averaging(_):
    pass


def rollout(steps=8, envs=4, seed=0, final=0, spec=SPEC):
    """A random rollout with episode ends; ``final`` of the truncated rows have a final observation."""
    generator = torch.Generator().manual_seed(seed)
    none = torch.zeros(1, envs, dtype=torch.bool)
    terminated, truncated = (torch.rand(steps, envs, generator=generator) < 0.08 for _ in range(2))
    ended = terminated | truncated
    at = (ended & ~terminated).nonzero()[:final]
    assert len(at) == final
    obs = torch.randn(steps + 1, envs, 3, generator=generator)
    if spec.num_actions:
        action = torch.randint(4, (steps, envs), generator=generator)
        log_prob = torch.full((steps, envs), -float(np.log(4)))
    else:
        action = torch.randn(steps, envs, *spec.action_shape, generator=generator)
        log_prob = -0.5 * action.square().sum(2) - float(np.log(2 * np.pi))
    return Rollout(
        obs=obs,
        action=action,
        log_prob=log_prob,
        reward=torch.randn(steps, envs, generator=generator),
        terminated=terminated,
        ended=ended,
        valid=~torch.cat([none, ended[:-1]]),
        final_obs=torch.randn(final, 3, generator=generator),
        final_at=at,
    )


def with_and_without_replay(monkeypatch):
    """Yields twice: first updates are replayed, then they are run by torch."""
    yield
    monkeypatch.setattr(Update, "replays_at_all", False)
    yield


def numpy_of(data):
    return {name: getattr(data, name).numpy() for name in COLUMNS}


def successors(data, value, final_value):
    """(T, N) values of the observation after each step."""
    following = value[1:].copy()
    for (t, n), v in zip(data.final_at.tolist(), final_value, strict=True):
        following[t, n] = v
    return following
