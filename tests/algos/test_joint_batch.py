"""Two learner processes, each with half of the environments, update like one learner with all of them."""

from pathlib import Path

import torch

import forked

HALVES = """
import sys, torch
import torch.distributed as dist
sys.path.insert(0, sys.argv[2])
from rollouts import SPEC, no_averaging, rollout
from parl.algos import a2c, ppo
from parl.algos.a2c import env_group

torch.set_num_threads(1)
rank, learners = int(sys.argv[3]), int(sys.argv[4])
if learners > 1:
    where = f"file://{sys.argv[1]}/store"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=learners)

def mean(values):
    dist.all_reduce(values)
    values.div_(learners)

found = {}
for name, module, options in (
    ("a2c", a2c, {}),
    ("ppo", ppo, {"epochs": 2, "minibatch_size": 1000, "target_kl": 5.0}),
    ("normalized", ppo, {"epochs": 2, "minibatch_size": 1000, "normalize_observations": True}),
    ("rewards", ppo, {"epochs": 2, "minibatch_size": 1000, "normalize_rewards": True}),
):
    config = module.Config(normalize_advantages=False, hidden=(8,), **options)
    algorithm = module.A2C if module is a2c else module.PPO
    learner = algorithm(config, SPEC).make_learner(0, "cpu")
    learner.learners = learners
    for seed in range(3):
        whole = rollout(8, 4, seed)
        whole.valid.fill_(True)  # equal parts: the mean of two means is the mean of all
        part = whole if learners == 1 else env_group(whole, rank, learners)
        learner.learn(part, 0.0, no_averaging if learners == 1 else mean)
    found[name] = learner.weights
torch.save(found, f"{sys.argv[1]}/{rank}-of-{learners}.pt")
if learners > 1:
    dist.destroy_process_group()
"""


def test_two_learners_on_halves_update_like_one_on_the_whole(tmp_path):
    script = tmp_path / "halves.py"
    script.write_text(HALVES)

    def start(rank, learners):
        return forked.Program([script, tmp_path, Path(__file__).parent, rank, learners], tmp_path)

    for program in [start(0, 2), start(1, 2), start(0, 1)]:
        _, err = program.communicate(280)
        assert program.returncode == 0, err
    one = torch.load(tmp_path / "0-of-1.pt", weights_only=True)
    for rank in range(2):
        parts = torch.load(tmp_path / f"{rank}-of-2.pt", weights_only=True)
        assert parts.keys() == one.keys() == {"a2c", "ppo", "normalized", "rewards"}
        for name, weights in parts.items():
            torch.testing.assert_close(weights, one[name], rtol=1e-4, atol=1e-5)
