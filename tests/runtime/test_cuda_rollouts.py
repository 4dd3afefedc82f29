"""Rollouts that stay on a device: rows, ends of episodes, schedules, CUDA graphs and whole runs.

The device is the CPU here, whose tensors behave the same. `tests/cuda/device` uses a CUDA driver.
"""

import dataclasses

import pytest
import torch

from parl.algos import a2c, ppo, pqn
from parl.envs import EnvMaker
from parl.errors import ConfigError, NonFiniteError
from parl.runtime import checkpoint
from parl.runtime.cuda import on_policy
from parl.runtime.cuda.on_policy import (
    MAX_FINALS_PER_STEP,
    CudaRolloutActor,
    CudaRolloutBuffer,
    CudaRolloutLoop,
)
from parl.runtime.distributed.group import Group
from parl.runtime.on_policy.setup import RolloutSetup
from parl.train.topologies import TOPOLOGIES
from parl.types import EnvSpec

SPEC = EnvSpec((4,), "float32", (), "int64", 4, "same_step")
PICTURES = EnvSpec((1, 36, 36), "uint8", (), "int64", 4, "same_step")
KINDS = {"a2c": (a2c.A2C, a2c.Config), "ppo": (ppo.PPO, ppo.Config), "pqn": (pqn.PQN, pqn.Config)}

pytestmark = pytest.mark.usefixtures("one_thread")


class SymbolsOnDevice:
    """A vector environment of tensors with same-step autoreset: reward 1 for the number of the symbol shown.

    Environments are of three kinds: truncated after 7 steps, truncated after 6, terminated after 5. The
    observation is the symbol, one-hot or as one shade of gray; the final one is the number of steps.
    """

    def __init__(self, num_envs, spec):
        self.num_envs, self._spec, self.resets, self.seeds = num_envs, spec, [], []
        kind = torch.arange(num_envs) % 3
        self._lengths = torch.tensor([7, 6, 5])[kind]
        self._terminates = kind == 2
        self._step = torch.zeros(num_envs, dtype=torch.int64)
        self._symbol = torch.zeros(num_envs, dtype=torch.int64)

    def _show(self, symbol):
        if self._spec.observation_dtype == "uint8":
            return (60 * symbol).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 36, 36)
        return torch.eye(4)[symbol]

    def reset(self, *, seed=None, options=None):
        mask = torch.ones(self.num_envs, dtype=torch.bool) if options is None else options["reset_mask"]
        self.resets.append(mask.clone())
        self.seeds.append(seed)
        self._step.masked_fill_(mask, 0)
        return self._show(self._symbol).clone(), {}

    def step(self, actions, *, out=None):
        reward = (actions == self._symbol).to(torch.int32)
        self._step += 1
        over = self._step >= self._lengths
        last = self._step.clone()
        self._step.masked_fill_(over, 0)
        self._symbol.copy_((self._symbol * 3 + self._step + 1) % 4)
        shown = self._show(self._symbol)
        out = torch.empty_like(shown.contiguous()) if out is None else out
        out.copy_(shown)
        final = last.view(-1, *[1] * (out.dim() - 1)).to(out.dtype).expand_as(out)
        return out, reward, over & self._terminates, over & ~self._terminates, {"final_obs": final}

    def check(self):
        pass

    def close(self):
        pass


def algorithm(name="ppo", spec=SPEC, **options):
    kind, config = KINDS[name]
    return kind(config(**{"rollout_steps": 8, "hidden": (16,), **options}), spec)


def actor(made, spec=SPEC, envs=6, random_steps=0):
    learner = made.make_learner(0, "cpu")
    policy = made.make_device_policy(learner, 1)
    policy.schedule(0)
    steps = made.rollout_steps
    return learner, CudaRolloutActor(SymbolsOnDevice(envs, spec), spec, policy, steps, 0, random_steps)


def test_environments_are_seeded_once():
    made, envs = algorithm(), SymbolsOnDevice(6, SPEC)
    policy = made.make_device_policy(made.make_learner(0, "cpu"), 1)
    policy.schedule(0)
    one = CudaRolloutActor(envs, SPEC, policy, made.rollout_steps, 5, 0)
    one.collect()
    assert envs.seeds == [5]


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_the_transitions_of_the_environments(name):
    made = algorithm(name, rollout_steps=7)  # environment 0 is truncated in the last row
    learner, one = actor(made)
    before = one.rollout.obs[-1].clone()
    for _ in range(3):
        one.collect()
        rows = one.rollout.tensors()
        assert torch.equal(rows.obs[0], before)
        before = rows.obs[-1].clone()
        assert torch.equal(rows.reward == 1, rows.obs[:-1].argmax(2) == rows.action)
        assert rows.valid.all() and rows.valid.shape == (7, 6)
        following = learner.values(rows)[1]
        with torch.no_grad():
            for t in range(7):
                for n in range(6):
                    cut = bool(rows.ended[t, n] & ~rows.terminated[t, n])
                    # Truncated after 7 or 6 steps: the final observation is that number.
                    seen = torch.full((4,), 7.0 if n % 3 == 0 else 6.0) if cut else rows.obs[t + 1, n]
                    torch.testing.assert_close(following[t, n], learner.values_of(seen.unsqueeze(0))[0])
    assert rows.terminated[:, [2, 5]].any() and not rows.terminated[:, [0, 1, 3, 4]].any()
    finished, _, reward = one.episodes.take()
    assert {length for _, length in finished} == {5, 6, 7} and len(finished) == 2 * (3 + 3 + 4)
    assert reward >= sum(value for value, _ in finished)


def test_truncations_beyond_the_capacity_count_as_terminations():
    envs = MAX_FINALS_PER_STEP + 9
    rollout = CudaRolloutBuffer(SPEC, 4, envs, "cpu")
    none = torch.zeros(envs, dtype=torch.bool)
    for t in range(4):
        cut = torch.ones(envs, dtype=torch.bool) if t in (1, 2, 3) else none
        rollout.record_ends(t, none, cut, torch.arange(float(envs)).view(-1, 1).expand(-1, 4) + 100 * t)
    rows = rollout.tensors()
    assert rows.ended[1:].all() and not rows.ended[0].any()
    # There is space for 64 final observations: 32 of step 1, 32 of step 2 and none of step 3.
    assert rows.terminated.sum(1).tolist() == [0, 9, 9, envs]
    for (t, n), obs in zip(rows.final_at.tolist(), rows.final_obs, strict=True):
        assert obs[0] == n + 100 * t
    assert len({tuple(at) for at in rows.final_at.tolist()}) == 64


@pytest.mark.parametrize("options", [{}, {"optimizer": "rmsprop"}])
@pytest.mark.parametrize("name", KINDS)
def test_schedules_on_the_device_equal_those_on_the_host(name, options):
    made = algorithm(name, learning_rate=1e-2, **options)
    _, one = actor(made)
    learners = [made.make_learner(0, "cpu") for _ in range(2)]
    for progress in (0.0, 0.4, 0.9):
        one.collect()
        steps = []
        for learner in learners:
            rows = one.rollout.tensors()
            rows = dataclasses.replace(rows, reward=rows.reward.clone())
            if learner is learners[1]:
                learner.schedule(progress)
                steps.append(learner.learn(rows, 0.0, lambda _: None))
                learner.count_updates(steps[-1])
            else:
                steps.append(learner.learn(rows, progress, lambda _: None))
        assert steps[0] == steps[1] > 0
        torch.testing.assert_close(learners[0].weights, learners[1].weights, rtol=1e-3, atol=1e-5)
    assert learners[0].state_dict()["updates"] == learners[1].state_dict()["updates"]
    # A saved learner resumes with schedules on the device or on the host.
    other = made.make_learner(9, "cpu")
    other.schedule(0.0)
    other.load_state_dict(learners[0].state_dict())
    one.collect()
    for learner in (other, learners[0]):
        learner.learn(one.rollout.tensors(), 0.0, lambda _: None)
    torch.testing.assert_close(other.weights, learners[0].weights, rtol=1e-3, atol=1e-5)


class TensorLoop(CudaRolloutLoop):
    def _make_envs(self):
        return SymbolsOnDevice(self._setup.num_envs, self._setup.spec)


def setup(made, spec=SPEC, total=100_000, random_steps=0, envs=6):
    maker = EnvMaker("parl/Pong-v0", {"device": "cuda"})
    return RolloutSetup(
        algorithm=made,
        maker=maker,
        spec=spec,
        seed=0,
        num_envs=envs,
        total_steps=total,
        threads=1,
        device="cpu",
        random_steps=random_steps,
    )


@pytest.mark.parametrize("name", KINDS)
def test_cuda_graphs_read_changing_values_from_the_device(monkeypatch, fake_cuda_graph, name):
    """Rates, update number, clip range, exploration and draws change; runs with and without graphs agree."""
    options = {"cuda_graph": True, "max_gradient_norm": 0.1, "learning_rate": 1e-3}
    if name != "a2c":
        options |= {"epochs": 2, "minibatch_size": 24}
    options |= {"pqn": {"epsilon_steps": 300}, "ppo": {"anneal_clip": True}}.get(name, {})
    found = []
    for by_graphs in (False, True):
        made = algorithm(name, PICTURES, **options)
        monkeypatch.setattr(type(made), "records_updates", property(lambda _, kept=by_graphs: kept))
        loop = TensorLoop(setup(made, PICTURES, total=600))
        loop.advance(48 * 7, 0.0)
        assert (loop._graphed_learn._graph is not None) == by_graphs
        found.append((loop.learner.weights.clone(), loop.updates, loop.take_episodes()))
        loop.close()
    assert found[0][1] == found[1][1] >= 7
    assert found[0][2] == found[1][2]
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_a_run_learns(name):
    options = {
        "a2c": {"learning_rate": 1e-2},
        "ppo": {"minibatch_size": 96, "epochs": 4, "learning_rate": 5e-3},
    }
    own = options.get(name, {"minibatch_size": 96, "learning_rate": 5e-3, "epsilon_steps": 2_000})
    loop = TensorLoop(setup(algorithm(name, gamma=0.5, anneal=False, **own), total=20_000, envs=24))
    loop.advance(12_000, 0.0)
    before, _ = loop.rewards_and_episodes()
    start = loop.env_steps
    loop.advance(start + 2_000, 0.0)
    assert (loop.rewards_and_episodes()[0] - before) / (loop.env_steps - start) > 0.9
    report = loop.report()
    assert report["updates_per_s"] > 0 and ("entropy" in report or name == "pqn")
    loop.close()


def test_non_finite_weights_are_found_by_a_report_and_by_a_save(tmp_path):
    loop = TensorLoop(setup(algorithm(minibatch_size=24)))
    loop.advance(200, 0.0)
    loop.learner.weights[3] = float("nan")
    for look in (loop.report, lambda: loop.save(tmp_path)):
        with pytest.raises(NonFiniteError, match=r"weights holds 1 of \d+ numbers that are not finite"):
            look()
    loop.close()


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path):
    made = algorithm(minibatch_size=24)
    whole = TensorLoop(setup(made, random_steps=5))
    whole.advance(500, 0.0)
    whole.save(tmp_path)
    whole.take_episodes()
    whole.advance(1_500, 0.0)
    again = TensorLoop(setup(made, random_steps=5), checkpoint.read(tmp_path))
    again.advance(1_500, 0.0)
    assert (again.updates, again.env_steps) == (whole.updates, whole.env_steps)
    assert torch.equal(again.learner.weights, whole.learner.weights)
    assert again.take_episodes() == whole.take_episodes()


def test_random_starts_reset_every_environment_once():
    _, one = actor(algorithm(), random_steps=9)
    assert one.needs_random_steps and one.take_random_steps() == 9 * 6 and not one.needs_random_steps
    resets = torch.stack(one._envs.resets[1:]).sum(0)  # without the first reset, of all environments
    assert (
        resets.max() == 1 and resets.sum() >= 4
    )  # environments whose number of steps is 0 are not reset again
    one.collect()
    assert {length for _, length in one.episodes.take()[0]} <= {5, 6, 7}


def test_settings_that_need_the_host_are_refused():
    for options, text in (
        ({"lstm": 4}, "lstm = 4 needs environments on the CPU"),
        ({"cuda_graph": True, "target_kl": 0.1}, "target_kl = 0.1 needs the host"),
        ({"cuda_graph": True, "normalize_rewards": True}, "normalize_rewards = True needs the host"),
    ):
        with pytest.raises(ConfigError, match=text):
            algorithm(**options).check_device(grouped=False)
    with pytest.raises(ConfigError, match="cuda_graph = True is not supported with several"):
        algorithm("pqn", cuda_graph=True).check_device(grouped=True)
    there, here = (EnvMaker("parl/Pong-v0", {"device": device}) for device in ("cuda", "cpu"))
    for name in ("async", "hogwild", "predictor", "population", "data"):
        topology = TOPOLOGIES[name]
        with pytest.raises(ConfigError, match="environments on a CUDA device are for a2c, dqn, ppo, pqn"):
            topology.resolve_auto(algorithm(), topology.config(), there, SPEC, print)
    topology, said = TOPOLOGIES["rollout"], []
    with pytest.raises(ConfigError, match="need the learner there too"):
        topology.resolve_auto(algorithm(), topology.config(), there, SPEC, print)
    with pytest.raises(ConfigError, match="cuda_graph = True needs environments on a CUDA device"):
        topology.resolve_auto(algorithm(cuda_graph=True), topology.config(), here, SPEC, print)
    config = topology.resolve_auto(algorithm(), topology.config(device="cuda"), there, SPEC, said.append)
    assert config.threads == 1 and "are on cuda" in said[0]


def test_rewards_are_those_of_the_environments():
    loop, rewards = TensorLoop(setup(algorithm(minibatch_size=24), random_steps=3)), []
    tally = loop._actors[0].episodes
    step = tally.step
    tally.step = lambda reward, *ends: rewards.append(float(reward.sum())) or step(reward, *ends)
    loop.advance(200, 0.0)
    found, ended = loop.rewards_and_episodes()
    assert found == sum(rewards) > 0 and ended == len(loop.take_episodes()) > 0
    assert loop.env_steps == 6 * len(rewards)
    loop.close()


def test_episodes_that_are_not_kept_are_counted(monkeypatch):
    loops = [TensorLoop(setup(algorithm(minibatch_size=24), random_steps=3)) for _ in range(2)]
    monkeypatch.setattr(loops[0]._actors[0].episodes, "_capacity", 1)
    for loop in loops:
        loop.advance(200, 0.0)
    few, all_ = ((loop.rewards_and_episodes(), len(loop.take_episodes())) for loop in loops)
    assert few[0] == all_[0] and few[1] == 1 < all_[1]
    for loop in loops:
        loop.close()


@pytest.mark.parametrize(("group", "more"), [(None, 0), (Group(2, 3, 0), 4_000_058)])
def test_seeds_depend_on_the_run_its_resumes_and_its_rank(monkeypatch, group, more):
    made = setup(algorithm(minibatch_size=24), random_steps=4)
    loop = TensorLoop(made)
    loop._setup, loop._resumes = dataclasses.replace(made, seed=7, group=group), 3
    asked, seeds = [], []
    monkeypatch.setattr(on_policy, "actor_seeds", lambda *which: asked.append(which) or (11, 12))
    monkeypatch.setattr(on_policy, "CudaRolloutActor", lambda *parts: seeds.append(parts[-2:]))
    loop._make_actors()
    assert asked == [(7 + 3_000_009 + more, 0)] and seeds == [(12, 4)]
    loop.close()
