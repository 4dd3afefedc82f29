"""In the deterministic schedule of every algorithm, equal seeds give equal weights and others do not."""

import numpy as np
import pytest
import torch

from parl.run import RunDirectory
from parl.train import ALGORITHMS, train

REPLAY = {"learning_starts": 40, "batch_size": 8, "replay_capacity": 500, "total_steps": 120}
REPLAY |= {"replay_ratio": 4.0}
ROLLOUT = {"total_steps": 400, "rollout_steps": 8}
OPTIONS = {
    "replay": REPLAY,
    "rollout": ROLLOUT,
    "async": ROLLOUT | {"actors": 2},
    "hogwild": ROLLOUT | {"actors": 2},
    "predictor": ROLLOUT | {"actors": 2},
    "population": {"total_steps": 400},
    "data": {"total_steps": 400},
}


def weights(name, folder, seed, label):
    options = OPTIONS[ALGORITHMS[name].topology] | {"num_envs": 4, "hidden": (8,), "evaluation_episodes": 0}
    if name == "bc":
        rng = np.random.default_rng(0)
        play = folder / "play.npz"
        np.savez(play, observations=rng.normal(size=(99, 4)).astype("f"), actions=rng.integers(0, 2, 99))
        options |= {"data": (str(play),)}
    env = "Pendulum-v1" if name in ("sac", "td3", "ddpg") else "CartPole-v1"
    run = train(
        name,
        env=env,
        schedule="deterministic",
        seed=seed,
        name=label,
        quiet=True,
        runs=str(folder),
        **options,
    )
    assert run.updates > 0
    last = RunDirectory.open(run.path).checkpoints.last()
    return torch.load(last / "learner.pt", weights_only=True)["weights"]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_same_seed_same_bits(tmp_path, name):
    one, two, other = (weights(name, tmp_path, seed, label) for seed, label in ((3, "a"), (3, "b"), (4, "c")))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
