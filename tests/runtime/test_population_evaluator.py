"""Members of a population: their environments, seeds and networks, and the processes that evaluate them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from counting_env import CountingEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parl.envs import spec_of
from parl.errors import NonFiniteError
from parl.runtime import population
from parl.runtime.population import PopulationEvaluator, PopulationLoop, PopulationSetup
from parl.runtime.workers import WorkerTimeoutError


class Networks:
    """Network n of a batch chooses action n."""

    def __init__(self, rows, log, continuous):
        self._rows, self._log, self._continuous = rows, log, continuous

    def act(self, observations):
        self._log.append((self._rows.tolist(), observations[:, 0].tolist()))
        if self._continuous:
            return np.stack([self._rows - 2.0, self._rows * 0.25], axis=1).astype(np.float32)
        return self._rows.copy()

    def select(self, kept):
        return Networks(self._rows[kept], self._log, self._continuous)


class Algorithm:
    """A fake algorithm: the row of weights of a member holds its last number."""

    def __init__(self, continuous):
        self._continuous, self.log, self.made = continuous, [], []

    def make_policy(self, *args):
        self.made.append(args)
        return SimpleNamespace(
            assemble=lambda weights: Networks(np.arange(len(weights)), self.log, self._continuous)
        )

    def make_decoder(self):
        def decode(base, members, weights):
            weights[:] = torch.tensor([[float(member[-1])] for member in members])
            return weights

        return SimpleNamespace(decode=decode)


class Maker:
    """Makes vector environments of countdowns and keeps them."""

    def __init__(self, continuous=False):
        self._continuous, self.made, self.processes, self.envs = continuous, [], [], []

    def for_actors(self, processes):
        self.processes.append(processes)
        return self

    def __call__(self, count):
        # Environment i ends after 2 + i steps; odd lengths are truncated.
        space = Box(-1.0, 0.5, (2,), np.float32) if self._continuous else Discrete(9)
        self.envs = [CountingEnv(n, n % 2 == 1, action_space=space) for n in range(2, 2 + count)]
        makers = [lambda env=env: env for env in self.envs]
        self.made.append(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP))
        return self.made[-1]


def make_setup(size=10, batches=3, actors=2, continuous=False):
    maker = Maker(continuous)
    spec = spec_of(maker(1))
    return PopulationSetup(
        algorithm=Algorithm(continuous),
        maker=maker,
        spec=spec,
        seed=4,
        num_envs=size,
        total_steps=1_000,
        actors=actors,
        member_batches=batches,
    )


def test_each_member_plays_one_episode():
    setup = make_setup()
    evaluator = PopulationEvaluator(setup, 1)
    assert setup.maker.processes == [2] and setup.algorithm.made == [(1, 2, 4, 0)]
    weights = torch.zeros(3, 1)
    returns, lengths = evaluator.play(torch.zeros(1), [(5,), (6,), (7, 8)], weights, 3, 100)
    assert returns.tolist() == [20.0, 30.0, 40.0] and lengths.tolist() == [2, 3, 4]
    assert returns.dtype == np.float64 and lengths.dtype == np.int64
    assert weights.ravel().tolist() == [5.0, 6.0, 8.0]
    assert [env.seeds[0] for env in setup.maker.envs] == [103, 104, 105, 106]
    # After a quarter of the networks or more has ended, only the others act.
    rows = [rows for rows, _ in setup.algorithm.log]
    assert rows == [[0, 1, 2]] * 2 + [[1, 2]] + [[2]]
    assert [seen for _, seen in setup.algorithm.log] == [[0.0] * 3, [1.0] * 3, [2.0] * 2, [3.0]]
    # The environment without a member repeats the first action; after its end, one repeats its last.
    assert [env.actions for env in setup.maker.envs][3] == [0] * 4
    assert setup.maker.envs[1].actions[:3] == [1, 1, 1] and setup.maker.envs[2].actions == [2] * 4
    evaluator.close()


@pytest.mark.parametrize(("members", "sizes"), [(8, [8, 8, 8, 6, 6, 4, 3, 2, 1]), (4, [4, 4, 3, 2, 1])])
def test_networks_are_taken_out_when_a_quarter_has_ended(members, sizes):
    setup = make_setup(size=members, batches=1)
    evaluator = PopulationEvaluator(setup, 0)
    found = evaluator.play(torch.zeros(1), [(n,) for n in range(members)], torch.zeros(members, 1), 0, 0)
    assert found[1].tolist() == list(range(2, members + 2))
    assert found[0].tolist() == [10.0 * length for length in found[1]]
    assert [len(rows) for rows, _ in setup.algorithm.log] == sizes
    evaluator.close()


def test_actions_beyond_the_bounds_are_clipped():
    setup = make_setup(size=3, batches=1, continuous=True)
    evaluator = PopulationEvaluator(setup, 0)
    evaluator.play(torch.zeros(1), [(0,), (1,), (2,)], torch.zeros(3, 1), 0, 0)
    assert setup.maker.envs[0].actions[0] == [-1.0, 0.0] and setup.maker.envs[2].actions[0] == [0.0, 0.5]
    evaluator.close()


def test_environments_with_one_generator_are_reset_with_their_part_of_the_population():
    setup = make_setup()
    vector, resets = setup.maker(4), []
    reset = vector.reset
    vector.starts_parts = True
    vector.reset = lambda *, seed, options: resets.append((seed, options)) or reset(seed=seed)
    maker = SimpleNamespace(for_actors=lambda processes: lambda count: vector)
    evaluator = PopulationEvaluator(PopulationSetup(**vars(setup) | {"maker": maker}), 0)
    evaluator.play(torch.zeros(1), [(0,)], torch.zeros(1, 1), 3, 100)
    assert resets == [(100, {"part": (3, 10)})]


def test_a_non_finite_error_names_the_member_and_the_step():
    setup = make_setup()
    evaluator = PopulationEvaluator(setup, 0)
    step = setup.maker.envs[1].step
    setup.maker.envs[1].step = lambda action: (*step(action)[:1], float("nan"), False, False, {})
    with pytest.raises(NonFiniteError, match=r"environment 4 returned reward nan.* 1\b"):
        evaluator.play(torch.zeros(1), [(0,), (1,)], torch.zeros(2, 1), 3, 0)
    evaluator.close()


class Learner:
    """A fake learner whose members are numbers; keeps the arguments of ``tell``."""

    def __init__(self):
        self.weights, self.told, self.asked = torch.tensor([2.0]), [], 0

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]

    def ask(self, count):
        self.asked += 1
        return [(self.asked, number) for number in range(count)]

    def tell(self, members, returns, weights):
        self.told.append((len(members), returns.tolist(), weights.clone()))

    def metrics(self):
        return {"best": 1.0}


class Answers:
    """A fake process that answers when the test says so, in the order of the test."""

    def __init__(self, name):
        self.name, self.connection, self.questions = name, object(), []

    def send(self, question):
        self.questions.append(question)

    def answer(self, timeout):
        assert timeout == 0.0
        first, (_, members), _ = self.questions[-1]
        return np.arange(first, first + len(members)) * 10.0, np.full(len(members), 3)


def make_loop(monkeypatch, workers, ready, setup=None):
    setup = setup or make_setup(size=10, batches=4, actors=2)
    loop = PopulationLoop.__new__(PopulationLoop)
    loop._setup, loop._learner, loop._batches = setup, Learner(), setup.batch_slices()
    loop._env_steps = loop._updates = loop._resumes = loop._finished_episodes = 0
    loop._episodes, loop._rewards, loop._interrupted, loop._evaluator = [], 0.0, False, None
    loop._total_steps = setup.total_steps
    loop._actors, loop._idle = workers, list(workers)
    loop._shared_weights = SimpleNamespace(publish=lambda weights: None)
    loop._weights = torch.zeros(10, 1)
    monkeypatch.setattr(population, "wait", ready)
    return loop


def test_a_process_that_has_answered_gets_the_next_batch(monkeypatch):
    workers = [Answers("actor 0"), Answers("actor 1"), Answers("actor 2")]
    order = iter([[1], [], [1], [1, 0], [0]])

    def ready(connections, seconds):
        assert seconds == population.SLICE_S
        return [workers[number].connection for number in next(order)]

    loop = make_loop(monkeypatch, workers[:2], ready)
    returns, lengths = loop._evaluate([(7, number) for number in range(10)], 55)
    assert returns.tolist() == [10.0 * number for number in range(10)] and lengths.tolist() == [3] * 10
    assert [[question[0] for question in worker.questions] for worker in workers] == [[0], [2, 5, 7], []]
    assert {question[2] for worker in workers for question in worker.questions} == {55}
    # More processes than batches: the last one has nothing to do.
    order = iter([[0, 1]])
    loop = make_loop(monkeypatch, workers, ready, make_setup(size=10, batches=2, actors=3))
    loop._evaluate([(7, number) for number in range(10)], 55)
    assert workers[2].questions == []


def test_a_generation_is_counted(monkeypatch):
    loop = make_loop(monkeypatch, [], None)
    seeds = []

    def play(base, members, weights, first, env_seed):
        seeds.append((first, env_seed))
        weights[:] = float(first)
        return np.full(len(members), 2.5), np.full(len(members), 30)

    loop._evaluator = SimpleNamespace(play=play, close=lambda: None)
    loop._marked = (0.0, 0, 0)
    loop.advance(301, 0.0)
    assert loop.updates == 2 and loop.env_steps == 600 and loop.rewards_and_episodes() == (50.0, 20)
    assert loop.take_episodes()[0] == (2.5, 30)
    first, second = loop._setup.env_seed(0), loop._setup.env_seed(1)
    starts = (0, 2, 5, 7)
    assert seeds == [(start, first) for start in starts] + [(start, second) for start in starts]
    count, returns, weights = loop._learner.told[0]
    assert (
        count == 10
        and returns == [2.5] * 10
        and weights.ravel().tolist() == [0] * 2 + [2] * 3 + [5] * 2 + [7] * 3
    )
    report = loop.report()
    assert report["policy_lag"] == 0.0 and report["best"] == 1.0
    loop.advance(10**9, 0.0)
    assert loop.env_steps == 1_200, "the limit of 1,000 ends it"


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_unfinished_generation_is_discarded(monkeypatch, interrupted):
    now = [0.0]

    def ready(connections, seconds):
        now[0] += 1_000.0 if not interrupted else 2.0
        loop._interrupted = interrupted
        return []

    loop = make_loop(monkeypatch, [Answers("actor 0"), Answers("actor 1")], ready)
    monkeypatch.setattr("parl.runtime.workers.time", SimpleNamespace(monotonic=lambda: now[0]))
    if interrupted:
        loop.advance(100, 0.0)
        assert now[0] == 6.0, "polled until 3 s after the interrupt"
    else:
        with pytest.raises(WorkerTimeoutError, match=r"actor 0, actor 1 did not answer within 3600 s"):
            loop.advance(100, 0.0)
        assert now[0] == 4_000.0
    assert loop._learner.asked == 0 and not loop._learner.told and loop.updates == 0
