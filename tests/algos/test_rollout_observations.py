"""Dictionary observations in on-policy algorithms: encoded as rows of bytes, decoded, and learned from."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from batches import CAMERA, observations
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rollouts import BOX, SPEC, no_averaging

from parl.algos import a2c, bc, impala, ppo, pqn
from parl.envs import Rows, spec_of
from parl.errors import ConfigError
from parl.nets.observations import DictTorso, RowTorso
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.types import rows_of

torch.set_num_threads(1)
PARTED = dataclasses.replace(SPEC, observation_shape=(), observation_parts=CAMERA)


class Two(gymnasium.Env):
    """Observes its step as bytes and as a number, in a nested dictionary; truncated after three steps."""

    observation_space = Dict(
        {"eye": Box(0, 255, (2, 3), np.uint8), "more": Dict({"step": Box(0, 9, (), np.float64)})}
    )
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._show(), {}

    def _show(self):
        eye = np.full((2, 3), self._step, np.uint8)
        return {"eye": eye, "more": {"step": np.array(self._step / 4)}}

    def step(self, action):
        self._step += 1
        return self._show(), 0.0, False, self._step == 3, {}


def test_rows_contain_all_parts_and_can_be_decoded():
    rng = np.random.default_rng(0)
    obs = observations(CAMERA, 5, rng)
    rows = Rows(PARTED)(obs)
    assert rows.shape == (5, *PARTED.flat_row[0]) and rows.dtype == PARTED.flat_row[1] == "uint8"
    torso = RowTorso(PARTED, DictTorso(PARTED, (8,), False, "nature"))
    for name, part in torso.parts(torch.from_numpy(rows)).items():
        np.testing.assert_array_equal(part.numpy(), obs[name])
        assert part.numpy().dtype == obs[name].dtype
    one = {name: part[3] for name, part in obs.items()}
    np.testing.assert_array_equal(Rows(PARTED).one(one), rows[3])
    assert SPEC.flat_row == ((3,), "float32")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_actor_stores_its_observations(mode):
    env = SyncVectorEnv([Two] * 2, autoreset_mode=mode)
    spec = spec_of(env)
    assert spec.flat_row == ((10,), "uint8")
    actor = RolloutActor(
        env, spec, ppo.PPO(ppo.Config(hidden=(8,), images="impala"), spec).make_policy(0, 1, 2, 0), 0
    )
    buffer = RolloutBuffer(spec, 6, 2)
    actor.collect(buffer, 0)
    bytes_, numbers = buffer.obs[..., :6], buffer.obs[..., 6:].copy().view(np.float32)[..., 0]
    shown = [0, 1, 2, 3, 0, 1, 2] if mode is AutoresetMode.NEXT_STEP else [0, 1, 2, 0, 1, 2, 0]
    np.testing.assert_array_equal(bytes_[:, 1], np.repeat(shown, 6).reshape(7, 6))
    np.testing.assert_array_equal(numbers[:, 0], np.array(shown) / 4)
    rows = buffer.tensors()
    if mode is AutoresetMode.SAME_STEP:
        np.testing.assert_array_equal(rows.final_obs[:, :6].numpy(), 3)


@pytest.mark.parametrize(
    ("module", "kind", "options"),
    [
        pytest.param(ppo, "PPO", {"epochs": 1}, id="ppo"),
        pytest.param(a2c, "A2C", {}, id="a2c"),
        pytest.param(a2c, "A2C", {"lstm": 4}, id="lstm"),
        pytest.param(impala, "IMPALA", {}, id="impala"),
        pytest.param(pqn, "PQN", {"epochs": 1}, id="pqn"),
    ],
)
def test_algorithms_learn_and_act_with_dictionaries(module, kind, options):
    config = module.Config(hidden=(8,), rollout_steps=4, **options)
    algorithm = getattr(module, kind)(config, PARTED)
    learner = algorithm.make_learner(0, "cpu")
    policy = algorithm.make_policy(0, 1, 3, 0)
    rng = np.random.default_rng(1)
    buffer = RolloutBuffer(PARTED, 4, 3, memory=algorithm.memory)
    for t in range(5):
        buffer.obs[t] = rows_of(observations(CAMERA, 3, rng))
    buffer.action[:] = rng.integers(0, 4, (4, 3))
    buffer.reward[:] = rng.normal(size=(4, 3))
    buffer.log_prob[:] = -np.log(4)
    buffer.valid[:] = True
    before = learner.weights.clone()
    assert learner.learn(buffer.tensors(), 0.0, no_averaging) > 0
    policy.weights.copy_(learner.weights)
    moved = (learner.weights != before).float().mean()
    assert moved > 0.3  # on so few images many ReLUs are inactive, and their weights do not change
    obs = observations(CAMERA, 64, rng)
    if options.get("lstm"):
        policy.restart(np.ones(64, bool))
    # Dictionaries and rows give the same actions.
    first = policy.act_greedily(obs)
    if options.get("lstm"):
        policy.restart(np.ones(64, bool))
    np.testing.assert_array_equal(first, policy.act_greedily(rows_of(obs)))


def test_settings_for_vectors_are_refused():
    for module, kind in ((ppo, "PPO"), (pqn, "PQN")):
        config = module.Config(normalize_observations=True)
        with pytest.raises(ConfigError, match="normalize_observations = True is for vectors"):
            getattr(module, kind)(config, PARTED).make_learner(0, "cpu")
    with pytest.raises(ConfigError, match="bc takes observations of kind vector, image"):
        bc.BC(bc.Config(), dataclasses.replace(BOX, observation_shape=(), observation_parts=CAMERA))
