"""Tiny runs in every topology, and an environment whose evaluations have given returns."""

import gymnasium
import numpy as np

SMALL = {"num_envs": 4, "hidden": (4,)}
REPLAY = {"learning_starts": 10, "batch_size": 4, "replay_ratio": 1.0, "replay_capacity": 100, "n_step": 1}
TOPOLOGIES = {
    "deterministic": ("dqn", {"schedule": "deterministic", "actors": 1, "learners": 1, **REPLAY}),
    "replay async": ("dqn", {"actors": 1, "learners": 1, "actor_kind": "thread", **REPLAY}),
    "rainbow": ("rainbow", {"schedule": "deterministic", "actors": 1, "learners": 1, **REPLAY}),
    "sync": ("ppo", {"rollout_steps": 8}),
    "async": ("impala", {"rollout_steps": 8, "actors": 1, "actor_kind": "thread"}),
    "hogwild": ("a3c", {"rollout_steps": 8, "actors": 1, "actor_kind": "thread"}),
    "predictor": ("ga3c", {"rollout_steps": 8, "actors": 1, "actor_kind": "thread"}),
    "population": ("es", {"actors": 1}),
}

# Of each evaluation.
EPISODES = 3


class Scripted(gymnasium.Env):
    """Episodes of one step. Evaluation number i has the return ``script[i]``, then 0; training always 0."""

    script: tuple[float, ...] = ()
    seeds: list[int] = []  # noqa: RUF012 - shared on purpose: evaluations run in the test's process
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.score = 0.0
        if seed is not None and seed < 2**24:
            number = len(Scripted.seeds) // EPISODES
            Scripted.seeds.append(seed)
            self.score = Scripted.script[number] if number < len(Scripted.script) else 0.0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.score, True, False, {}


def scripted(*script):
    Scripted.script, Scripted.seeds = script, []
    return Scripted
