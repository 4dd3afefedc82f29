"""Tiny runs of every algorithm in three stages, to find the first one that a setting changes."""

import contextlib
import dataclasses
import hashlib

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation

from parl.envs import EnvMaker, spec_of
from parl.train import start_states
from parl.train.registry import ALGORITHMS, make_algorithm, module_of, topology_of
from parl.types import EnvSpec

STAGES = ("network", "acting", "learning")
"""Stages in their order: the initial weights, actions with these weights, the result of the run."""
PICTURES = EnvSpec((2, 40, 36), "uint8", (), "int64", 4, "next_step")
PICTURES_BOX = EnvSpec((2, 40, 36), "uint8", (2,), "float32", None, "next_step", (-1.0, -1.0), (1.0, 1.0))


def stacked():
    return FrameStackObservation(gymnasium.make("CartPole-v1"), 2)


ENVS = {name: EnvMaker(name) for name in ("CartPole-v1", "Pendulum-v1")} | {"stacked": EnvMaker(stacked)}
# Games of ten steps.
BREAKOUT = {"obs_type": "ram", "stack_num": None, "max_num_frames_per_episode": 40}
ENVS |= {"breakout": EnvMaker("parl/Breakout-v0", BREAKOUT)}
SPECS = {}
CONTINUOUS = ("sac", "td3", "ddpg")

ROLLOUT = {"num_envs": 4, "total_steps": 96}
RUNS = {
    "replay": {
        "num_envs": 4,
        "total_steps": 80,
        "learning_starts": 40,
        "batch_size": 8,
        "replay_capacity": 500,
        "replay_ratio": 2.0,
        "actors": 2,
    },
    "rollout": ROLLOUT,
    "async": ROLLOUT | {"actors": 2},
    "hogwild": ROLLOUT | {"actors": 2},
    "predictor": ROLLOUT | {"actors": 2},
    "data": ROLLOUT,
    "population": {"num_envs": 6, "total_steps": 200, "member_batches": 2},
}
SMALL = {
    "rollout": {"hidden": (2,), "rollout_steps": 8, "learning_rate": 0.02},
    "replay": {"hidden": (2,), "n_step": 2},
    "population": {"hidden": (2,)},
}

# Schedules of exploration that are as short as these runs.
SOONER = {name: {"random_steps": 60} for name in CONTINUOUS}
SOONER |= {name: {"epsilon_steps": 100} for name in ("dqn", "rainbow")} | {"pqn": {"epsilon_steps": 100}}


def write_play(folder, env):
    """A file of random observations and actions, for bc."""
    spec, rng = spec_for(env), np.random.default_rng(0)
    file = folder / f"{env}.npz"
    if not file.exists():
        obs = rng.normal(size=(99, *spec.observation_shape)).astype(np.float32)
        action = rng.integers(0, 2, 99) if spec.num_actions else rng.uniform(-1, 1, (99, *spec.action_shape))
        np.savez(file, observations=obs, actions=action.astype(spec.action_dtype))
    return (str(file),)


def env_of(name, context):
    return context.get("environment", "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1")


def spec_for(env):
    if env not in SPECS:
        probe = ENVS[env](1)
        SPECS[env] = spec_of(probe)
        probe.close()
    return SPECS[env]


def config_of(name, **own):
    """Settings of algorithm ``name`` for a network of two units."""
    topology = ALGORITHMS[name].topology
    small = SMALL.get(topology, SMALL["rollout"]) | SOONER.get(name, {})
    return module_of(name).Config(**(small | own))


def run_of(name, **run):
    """Settings of a tiny run in the deterministic schedule."""
    topology = ALGORITHMS[name].topology
    return topology_of(name).config(**(RUNS[topology] | {"schedule": "deterministic", "seed": 3} | run))


def digest(parts):
    """A hash of nested tensors, arrays and numbers."""
    seen = hashlib.sha256()

    def take(part):
        if isinstance(part, dict):
            for key in sorted(part):
                seen.update(str(key).encode())
                take(part[key])
        elif isinstance(part, list | tuple):
            for one in part:
                take(one)
        elif isinstance(part, torch.Tensor | np.ndarray):
            seen.update(np.ascontiguousarray(part).tobytes())
        else:
            seen.update(repr(part).encode())

    take(parts)
    return seen.hexdigest()


def weights_in(state):
    return {key: value for key, value in state.items() if key.endswith("weights")}


def observation_network(learner):
    """The part of a learner that takes observations."""
    if hasattr(learner, "networks"):
        return learner.networks.actor
    return learner.online if hasattr(learner, "online") else learner.network


def algorithm_for(name, env, own):
    return make_algorithm(name, config_of(name, **own), spec_for(env))


def network(name, own, spec):
    """A hash of the initial weights of a learner."""
    learner = make_algorithm(name, config_of(name, **own), spec).make_learner(5, "cpu")
    return digest(weights_in(learner.state_dict()))


def acting(name, own, env):
    """A hash of actions of three actors with a learner's initial weights, at several times of a run."""
    made, spec = algorithm_for(name, env, own), spec_for(env)
    weights = made.make_learner(5, "cpu").weights
    obs = np.random.default_rng(0).normal(size=(64, *spec.observation_shape)).astype(np.float32)
    found = []
    for actor in range(3):
        policy = made.make_policy(actor, 3, len(obs), 7)
        policy.weights.copy_(weights)
        if hasattr(policy, "restart"):
            policy.restart(np.ones(len(obs), bool))
        for env_steps in (0, 30, 90, 10**7):
            found.append(policy.act(obs, env_steps))
        found.append(policy.act_greedily(obs))
    return digest(found)


def learning(name, own, env, data=(), **run):
    """A hash of the result of a tiny deterministic run: weights, number of updates and steps."""
    topology, spec = topology_of(name), spec_for(env)
    made, config = algorithm_for(name, env, own), run_of(name, **run)
    if data:
        config = dataclasses.replace(config, data=data)
    config = topology.resolve_auto(made, config, ENVS[env], spec, lambda _: None)
    setup = topology.setup(made, config, ENVS[env], spec)
    setup = dataclasses.replace(setup, **start_states.fields(config, None))
    with contextlib.closing(topology.loop(setup, config, None)) as loop:
        loop.advance(config.total_steps, 60.0)
        assert loop.updates > 0
        return digest([weights_in(loop.learner.state_dict()), loop.updates, loop.env_steps])


def digest_of_stage(stage, name, own, env, data):
    if stage == "network":
        return network(name, own, spec_for(env))
    return acting(name, own, env) if stage == "acting" else learning(name, own, env, data)
