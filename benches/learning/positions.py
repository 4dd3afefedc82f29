"""A wrapper for CartPole that hides the velocities, so that a policy needs memory."""

import gymnasium
import numpy as np


class Positions(gymnasium.ObservationWrapper):
    """Observations (2,) float32: the position of the cart and the angle of the pole."""

    def __init__(self, env):
        super().__init__(env)
        space = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)

    def observation(self, observation):
        return observation[::2]
