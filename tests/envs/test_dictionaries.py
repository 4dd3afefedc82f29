"""Dict observations of an environment, in a replay and in a run."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parl.envs import EnvMaker, Observer, spec_of
from parl.errors import ConfigError
from parl.train import resume, train
from saved_learners import weights_of


class CounterEnv(gymnasium.Env):
    """Shows a counter as a picture and as a nested vector; every second five-step episode is truncated."""

    observation_space = Dict(
        {
            "eye": Box(0, 255, (1, 36, 36), np.uint8),
            "arm": Dict({"joints": Box(-9.0, 9.0, (2,), np.float64)}),
        }
    )
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self._episode = -1

    def _show(self):
        number = 10 * self._episode + self._step
        return {
            "eye": np.full((1, 36, 36), number % 256, np.uint8),
            "arm": {"joints": np.full(2, number / 100)},
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._episode, self._step = (self._episode + 1) % 20, 0
        return self._show(), {}

    def step(self, action):
        self._step += 1
        over = self._step == 5
        return self._show(), 1.0, over and self._episode % 2 == 0, over and self._episode % 2 == 1, {}


class CounterMaker:
    """Picklable function that makes vector environments of `CounterEnv` with an autoreset mode."""

    def __init__(self, mode):
        self.mode = mode

    def __call__(self, num_envs):
        return SyncVectorEnv([CounterEnv] * num_envs, autoreset_mode=self.mode)


def test_parts_are_described_and_named():
    spec = spec_of(EnvMaker(CounterEnv)(2))
    assert set(spec.observation_parts) == {("eye", (1, 36, 36), "uint8"), ("arm.joints", (2,), "float32")}
    assert (spec.observation_kind, spec.observation_shape) == ("dict", ())
    env = EnvMaker(CounterEnv)(2)
    seen = Observer(spec)(env.reset(seed=0)[0])
    assert {name: (part.shape, part.dtype.name) for name, part in seen.items()} == {
        "eye": ((2, 1, 36, 36), "uint8"),
        "arm.joints": ((2, 2), "float32"),
    }


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Dict({"a": Discrete(3)}), "observation part a is Discrete"),
        (Dict({"a.b": Box(0, 1, (1,))}), "non-empty string without"),
        (Dict({}), "neither Box nor a Dict"),
    ],
)
def test_unsupported_parts_are_named(space, message):
    class Odd(CounterEnv):
        observation_space = space

    env = SyncVectorEnv([CounterEnv])
    env.single_observation_space = space
    with pytest.raises(ConfigError, match=message):
        spec_of(env)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_n_step_transitions_of_dict_observations(mode):
    """The next observation is three counts later, or the last one of the episode."""
    from parl.algos.sac import SAC, Config
    from parl.runtime.off_policy.pacer import Pacer
    from parl.runtime.off_policy.setup import OffPolicySetup

    maker = EnvMaker(CounterMaker(mode))
    spec = spec_of(maker(1))
    algorithm = SAC(Config(hidden=(4,), n_step=3, images="nature", image_features=4), spec)
    pacer = Pacer(1.0, 8, 2, 50, 10**9)
    setup = OffPolicySetup(
        algorithm=algorithm,
        maker=maker,
        spec=spec,
        seed=0,
        actors=1,
        processes=False,
        learners=1,
        num_envs=2,
        batch_size=8,
        replay_capacity=500,
        pacer=pacer,
        device="cpu",
    )
    replay = setup.make_replay(None)
    actor = setup.make_actor(0, replay, 0)
    for _ in range(60):
        actor.step(0)
    batch = replay.sample(500, mode="uniform")
    before = np.round(batch.obs["arm.joints"][:, 0] * 100).astype(int)
    after = np.round(batch.next_obs["arm.joints"][:, 0] * 100).astype(int)
    steps = np.minimum(3, 5 - before % 10)
    lives = batch.discount > 0
    np.testing.assert_array_equal(after[lives], (before + steps)[lives])
    np.testing.assert_array_equal(batch.obs["eye"][:, 0, 0, 0], before % 256)
    np.testing.assert_array_equal(batch.next_obs["eye"][lives][:, 0, 3, 3], (before + steps)[lives] % 256)
    ended = before % 10 + steps == 5
    assert (batch.discount[ended & (before // 10 % 2 == 0)] == 0).all()
    assert lives[ended & (before // 10 % 2 == 1)].all() and (ended & lives).any()


def test_a_run_with_dict_observations_resumes_exactly(tmp_path):
    options = {
        "env": CounterMaker(AutoresetMode.NEXT_STEP),
        "schedule": "deterministic",
        "num_envs": 2,
        "hidden": (8,),
        "image_features": 8,
        "batch_size": 8,
        "replay_ratio": 1.0,
        "learning_starts": 40,
        "replay_capacity": 200,
        "evaluation_episodes": 2,
        "runs": str(tmp_path),
        "quiet": True,
    }
    whole = train("sac", **options, total_steps=200, name="whole")
    half = train("sac", **options, total_steps=100, name="half")
    resume(half.path, total_steps=200)
    assert torch.equal(weights_of(whole.path), weights_of(half.path)) and whole.updates > 5
