"""Rainbow: :mod:`parl.algos.dqn` with the options that Hessel et al. (2018) combine as defaults.

Double Q-learning, dueling streams, three-step returns, prioritized replay, 51 atoms, noisy layers. Every
option of ``dqn`` can still be set. For vectors, where the source has no settings, exploration also begins
with random actions: the noise is one draw for a whole batch of environments, and alone leaves some
actions untried for long.

A ``network`` of your own returns logits (batch, actions, atoms), see ``dqn``.

Source: Hessel et al. (2018), "Rainbow: Combining Improvements in Deep Reinforcement Learning", table 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from parl.algos import dqn
from parl.types import EnvSpec

Rainbow = dqn.DQN


@dataclass(frozen=True)
class Config(dqn.Config):
    """Settings of Rainbow: those of DQN with other defaults, which are for vectors."""

    algorithm_name: ClassVar[str] = "rainbow"

    dueling: bool = True
    dueling_hidden: int = 64
    distribution: dqn.Distribution = "c51"
    noisy: bool = True
    n_step: int = 3
    alpha: float = 0.5
    hidden: tuple[int, ...] = (64,)
    learning_rate: float = 1e-3
    epsilon_last: float = 0.0


PRESETS = {
    "atari-ram": replace(
        dqn.ATARI_RAM,
        # With noise of the default size, actions are random for longer than Pong takes to learn.
        algorithm={
            **dqn.ATARI_RAM.algorithm,
            "noisy_sigma": 0.1,
            "epsilon_last": 0.02,
            # Where rewards are rare, returns are smaller than the distance of 0.4 that 51 equal ones have.
            "atom_spacing": "sqrt",
        },
        tuned=False,
        note="Settings of dqn's preset with less noise; the spacing of the atoms was chosen on Battle Zone.",
    )
}


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations.

    Learning 51 atoms is slower than learning one mean: CartPole takes some 4,000 updates, but with the replay
    ratio of ``dqn`` 120,000 steps give only 1,800.
    """
    return dqn.default_run(spec) or {"replay_ratio": 4.0}


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations: the defaults, or those of the source for images."""
    if not spec.has_images:
        return Config()
    return replace(
        Config(),
        reward_scale=1.0,
        hidden=(512,),
        dueling_hidden=512,
        layer_norm=False,
        learning_rate=6.25e-5,
        adam_epsilon=1.5e-4,
        target_period=2_000,
        beta_steps=10_000_000,
        epsilon_first=0.0,
    )
