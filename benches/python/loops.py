"""Training loops of other libraries, with their own replay buffers and with parl's.

Stable-Baselines3, TorchRL, Tianshou and a loop in one file (a rewrite in the style of CleanRL, not CleanRL's
script) train a DQN, with one gradient step per environment step, on CartPole-v1 (four numbers) and on a
synthetic game of 84x84x4 pixels. Within a group only the buffer differs: seeds, networks and batch size are
the same, and all buffers are full before the measurement, with priorities of every size. In each round every
variant runs a chunk of steps, so that other load affects all alike. For each variant this prints the
microseconds of processor time per step, in total and in calls of the buffer; then, for ``parl / peer``,
median and quartiles over the rounds of the ratio of steps per second in processor time and in wall time, the
same ratio for the calls of the buffer alone, and the ratio that a buffer whose calls take no time would reach
in the peer's loop ("free buffer"), which no buffer can exceed.

Other settings: ``--batch 256 --updates 4`` (several updates per environment step); ``stacked`` rows as in
Tianshou's Atari scripts (one frame per row, stacks of four built when rows are sampled); and, with
``--cleanrl FILE``, the buffer in CleanRL's ``rainbow_atari.py`` (two binary trees in Python), where FILE is
that script from a checkout of CleanRL, whose buffer classes are executed unchanged.

The network for pixels is very small (a convolution with stride 8), so that its time does not hide that of
gathering rows; ``--network nature`` selects the one of Mnih et al. (2015).
"""

from __future__ import annotations

import argparse
import ast
import collections
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option, version_of

BARS = {"own prioritized": 1.5, "cpprb prioritized": 1.5, "own uniform": 1.0}
PIXELS = (4, 84, 84)
# Path of CleanRL's script under "file", if it is compared.
CLEANRL: dict[str, str] = {}
ROOT = Path(__file__).resolve().parents[2]


class Frames(gym.Env):
    """Environment with episodes of 200 steps, whose observations are precomputed stacks of random frames."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 255, PIXELS, np.uint8)
        self.action_space = spaces.Discrete(4)
        self.pool = np.random.default_rng(0).integers(0, 256, (64, *PIXELS), np.uint8)
        self.step_count = 0

    def reset(self, *, seed=None, options=None):
        self.step_count = 0
        return self.pool[0], {}

    def step(self, action):
        self.step_count += 1
        done = self.step_count % 200 == 0
        return self.pool[self.step_count % 64], float(action == 1), done, False, {}


gym.register("Frames-v0", Frames)


def features(pixels: bool, network: str) -> tuple[nn.Module, int]:
    """The feature extractor of an observation, and its number of features."""
    if not pixels:
        return nn.Identity(), 4
    if network == "small":
        return nn.Sequential(nn.Conv2d(4, 8, 8, 8), nn.ReLU(), nn.Flatten(-3)), 800
    layers = (nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1))
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(-3)), 3136


class Net(nn.Module):
    """Q-network."""

    def __init__(self, pixels: bool, network: str):
        super().__init__()
        self.pixels = pixels
        front, width = features(pixels, network)
        hidden = (120, 84) if not pixels else (128,)
        layers: list[nn.Module] = [front]
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.layers = nn.Sequential(*layers, nn.Linear(width, 4 if pixels else 2))

    def forward(self, x):
        return self.layers(x.float() / 255 if self.pixels else x)


class Timed:
    """Sums the processor time of the named methods of an object; nested calls are not counted twice."""

    def __init__(self):
        self.seconds, self.depth = 0.0, 0

    def watch(self, target: Any, *names: str) -> Any:
        kind = type(target)
        target.__class__ = type(kind)(
            kind.__name__, (kind,), {name: self.wrap(getattr(kind, name)) for name in names}
        )
        return target

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.depth:
                return call(*args, **kwargs)
            self.depth, start = 1, time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self.depth = 0

        return timed


class Setting:
    """Settings that the variants of a group share."""

    def __init__(self, kind: str, capacity: int, batch: int, network: str, updates: int = 1):
        self.pixels, self.stacked = kind != "numbers", kind == "stacked"
        self.capacity, self.batch, self.network, self.updates = capacity, batch, network, updates
        pixels = self.pixels
        self.env = "Frames-v0" if pixels else "CartPole-v1"
        self.actions = 4 if pixels else 2
        self.shape, self.dtype = (PIXELS, np.uint8) if pixels else ((4,), np.float32)

    def rows(self, n: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1)
        if self.pixels:
            obs = np.broadcast_to(rng.integers(0, 256, PIXELS, np.uint8), (n, *PIXELS))
        else:
            obs = rng.standard_normal((n, 4), np.float32)
        return {
            "obs": obs,
            "action": rng.integers(0, self.actions, n),
            "reward": np.ones(n, np.float32),
            "done": np.arange(n) % 200 == 199,
            "priority": rng.gamma(0.5, 1.0, n) + 1e-3,
        }

    def chunks(self):
        """Yields rows to fill a buffer, up to 2,000 at a time."""
        for first in range(0, self.capacity, 2000):
            yield self.rows(min(2000, self.capacity - first))


Variant = tuple[Callable[[int], None], Timed]


# Stable-Baselines3


def sb3(setting: Setting, kind: str) -> Variant:
    from stable_baselines3 import DQN
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    from parl.adapters.sb3 import PrioritizedDQN, UniformReplayBuffer

    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space):
            front, width = features(setting.pixels, setting.network)
            super().__init__(space, width)
            self.front = front

        def forward(self, x):
            return self.front(x)

    settings: dict[str, Any] = {}
    if kind == "parl uniform":
        settings["replay_buffer_class"] = UniformReplayBuffer
    model = (PrioritizedDQN if kind == "parl prioritized" else DQN)(
        "CnnPolicy" if setting.pixels else "MlpPolicy",
        setting.env,
        seed=0,
        device="cpu",
        buffer_size=setting.capacity,
        batch_size=setting.batch,
        learning_starts=0,
        train_freq=1,
        gradient_steps=setting.updates,
        policy_kwargs={
            "features_extractor_class": Extractor,
            "net_arch": [128] if setting.pixels else [120, 84],
        },
        **settings,
    )
    buffer = model.replay_buffer
    if kind.startswith("own"):
        for name in ("observations", "next_observations", "rewards"):
            getattr(buffer, name)[:] = 1
        buffer.full = True
    else:
        for rows in setting.chunks():
            columns = {"obs": rows["obs"], "next_obs": rows["obs"], "action": rows["action"][:, None]}
            ended = np.zeros(len(rows["done"]), np.bool_)
            buffer.replay.add(
                **columns,
                reward=rows["reward"],
                terminated=rows["done"],
                truncated=ended,
                env_id=np.zeros(len(ended), np.int64),
                priorities=rows["priority"],
            )
        buffer.full = True
    timed = Timed()
    names = ["add", "sample"] + (["update_priorities"] if kind == "parl prioritized" else [])
    timed.watch(buffer, *names)
    return lambda n: model.learn(n, reset_num_timesteps=False, log_interval=10**9), timed


# TorchRL


def torchrl(setting: Setting, kind: str) -> Variant:
    import logging

    logging.getLogger("torchrl").setLevel(logging.ERROR)
    import torchrl.data as theirs
    from tensordict import TensorDict
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv
    from torchrl.modules import QValueActor
    from torchrl.objectives import DQNLoss, SoftUpdate

    from parl.adapters import torchrl as ours

    torch.manual_seed(0)
    env = GymEnv(setting.env, categorical_action_encoding=True)
    actor = QValueActor(Net(setting.pixels, setting.network), spec=env.action_spec, in_keys=["observation"])
    loss = DQNLoss(actor, action_space="categorical", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    update_target = SoftUpdate(loss, eps=0.995)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-4)
    collector = Collector(env, actor, frames_per_batch=1, total_frames=-1)
    storage = theirs.LazyTensorStorage(setting.capacity)
    common = {"storage": storage, "batch_size": setting.batch}
    prioritized = {"alpha": 0.6, "beta": 0.4, **common}
    if kind == "own prioritized":
        buffer = theirs.TensorDictPrioritizedReplayBuffer(**prioritized)
    elif kind == "own uniform":
        buffer = theirs.TensorDictReplayBuffer(**common)
    elif kind == "parl sampler":
        sampler = ours.PrioritizedSampler(setting.capacity, alpha=0.6, beta=0.4)
        buffer = theirs.TensorDictReplayBuffer(sampler=sampler, **common)
    else:
        buffer = ours.TensorDictPrioritizedReplayBuffer(**prioritized)
    steps = iter(collector)
    first = next(steps).reshape(-1)
    filled = 0
    for rows in setting.chunks():
        n = len(rows["done"])
        data = TensorDict(
            {k: v.expand(n, *v.shape[1:]).clone() for k, v in first.items(True, True)}, batch_size=[n]
        )
        data["observation"] = torch.from_numpy(np.ascontiguousarray(rows["obs"]))
        data["next", "done"] = data["next", "terminated"] = torch.from_numpy(rows["done"]).reshape(-1, 1)
        index = buffer.extend(data)
        if kind != "own uniform":
            buffer.update_priority(index, torch.from_numpy(rows["priority"]).float())
        filled += n
    timed = Timed()
    timed.watch(buffer, "extend", "sample", "update_tensordict_priority")

    def run(n: int) -> None:
        for _ in range(n):
            buffer.extend(next(steps).reshape(-1))
            for _ in range(setting.updates):
                data = buffer.sample()
                value = loss(data)["loss"]
                value.backward()
                optimizer.step()
                optimizer.zero_grad()
                update_target.step()
                if kind != "own uniform":
                    buffer.update_tensordict_priority(data)

    return run, timed


# Tianshou


def tianshou(setting: Setting, kind: str) -> Variant:
    import tianshou.data as theirs
    from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.torch_utils import policy_within_training_step

    from parl.adapters import tianshou as ours

    class Model(Net):
        def forward(self, obs, state=None, info=None):
            return super().forward(torch.as_tensor(obs)), state

    torch.manual_seed(0)
    np.random.seed(0)
    envs = DummyVectorEnv([lambda: gym.make(setting.env) for _ in range(4)])
    policy = DiscreteQLearningPolicy(
        model=Model(setting.pixels, setting.network), action_space=spaces.Discrete(setting.actions)
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-4), target_update_freq=500)
    layout = {"stack_num": 4, "ignore_obs_next": True, "save_only_last_obs": True} if setting.stacked else {}
    if kind == "own uniform":
        buffer = theirs.VectorReplayBuffer(setting.capacity, 4, **layout)
    else:
        module = theirs if kind == "own prioritized" else ours
        buffer = module.PrioritizedVectorReplayBuffer(setting.capacity, 4, alpha=0.6, beta=0.4, **layout)
    collector = theirs.Collector(algorithm, envs, buffer)
    collector.reset()
    collector.collect(n_step=4)
    # Fills the buffer with copies of the first row.
    for part in buffer.buffers:
        part._size = part.maxsize
    buffer._lengths[:] = [part.maxsize for part in buffer.buffers]
    size = len(buffer)
    for name in ("obs",) if setting.stacked else ("obs", "obs_next"):
        getattr(buffer, name)[:] = getattr(buffer, name)[0]
    if kind != "own uniform":
        rng = np.random.default_rng(1)
        for first in range(0, size, 5000):
            index = np.arange(first, min(first + 5000, size))
            buffer.init_weight(index)
            buffer.update_weight(index, rng.gamma(0.5, 1.0, len(index)) + 1e-3)
    timed = Timed()
    timed.watch(
        buffer,
        *("add", "sample", "__getitem__", "next", "unfinished_index"),
        *(["update_weight"] if kind != "own uniform" else []),
    )

    def run(n: int) -> None:
        for _ in range(n // 4):
            collector.collect(n_step=4)
            with policy_within_training_step(policy):
                for _ in range(4 * setting.updates):
                    algorithm.update(buffer=buffer, sample_size=setting.batch)

    return run, timed


# A loop in one file, in the style of CleanRL


def one_file(setting: Setting, kind: str) -> Variant:
    makers = {"own uniform": _sb3_rows, "cpprb prioritized": _cpprb_rows, "own prioritized": _cleanrl_rows}
    make = makers.get(kind, _parl_rows)
    timed = Timed()
    store, draw, prioritize = (timed.wrap(call) for call in make(setting, kind))
    torch.manual_seed(0)
    env = gym.make(setting.env)
    network, target = Net(setting.pixels, setting.network), Net(setting.pixels, setting.network)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    rng = np.random.default_rng(0)
    state = {"obs": env.reset(seed=0)[0], "steps": 0}

    def run(n: int) -> None:
        obs = state["obs"]
        for _ in range(n):
            if rng.random() < 0.1:
                action = int(rng.integers(setting.actions))
            else:
                with torch.no_grad():
                    action = int(network(torch.from_numpy(obs)[None]).argmax())
            after, reward, terminated, truncated, _ = env.step(action)
            store(obs, after, action, reward, terminated, truncated)
            obs = env.reset()[0] if terminated or truncated else after
            for _ in range(setting.updates):
                rows, actions, rewards, dones, afters, weights, which = draw()
                with torch.no_grad():
                    wanted = rewards.flatten() + 0.99 * target(afters).max(1).values * (1 - dones.flatten())
                values = network(rows).gather(1, actions.reshape(-1, 1)).squeeze(1)
                errors = wanted - values
                loss = errors.square().mean() if weights is None else (weights * errors.square()).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if which is not None:
                    prioritize(which, errors.detach().abs().numpy())
            state["steps"] += 1
            if state["steps"] % 500 == 0:
                target.load_state_dict(network.state_dict())
        state["obs"] = obs

    return run, timed


def _sb3_rows(setting: Setting, kind: str):
    """Stable-Baselines3's buffer, which CleanRL's dqn.py uses."""
    from stable_baselines3.common.buffers import ReplayBuffer

    space = spaces.Box(0, 255, setting.shape, setting.dtype)
    buffer = ReplayBuffer(
        setting.capacity,
        space,
        spaces.Discrete(setting.actions),
        "cpu",
        handle_timeout_termination=False,
    )
    for name in ("observations", "next_observations", "rewards"):
        getattr(buffer, name)[:] = 1
    buffer.full = True

    def store(obs, after, action, reward, terminated, truncated):
        buffer.add(obs, after, np.array([action]), np.array([reward]), np.array([terminated]), [{}])

    def draw():
        data = buffer.sample(setting.batch)
        return (
            data.observations,
            data.actions,
            data.rewards,
            data.dones,
            data.next_observations,
            None,
            None,
        )

    return store, draw, lambda which, errors: None


def _cpprb_rows(setting: Setting, kind: str):
    from cpprb import PrioritizedReplayBuffer

    pixels = {"shape": setting.shape, "dtype": setting.dtype}
    buffer = PrioritizedReplayBuffer(
        setting.capacity,
        {"obs": pixels, "act": {"dtype": np.int64}, "rew": {}, "next_obs": pixels, "done": {}},
        alpha=0.6,
    )
    for rows in setting.chunks():
        columns = {"obs": rows["obs"], "next_obs": rows["obs"], "act": rows["action"], "rew": rows["reward"]}
        buffer.add(**columns, done=rows["done"], priorities=rows["priority"])

    def store(obs, after, action, reward, terminated, truncated):
        buffer.add(obs=obs, act=action, rew=reward, next_obs=after, done=terminated)

    def draw():
        data = buffer.sample(setting.batch, beta=0.4)
        names = ("obs", "act", "rew", "done", "next_obs", "weights")
        return *(torch.from_numpy(np.asarray(data[name])) for name in names), data["indexes"]

    return store, draw, buffer.update_priorities


def _cleanrl_rows(setting: Setting, kind: str):
    """The buffer of CleanRL's Rainbow script, executed from that file."""
    wanted = {"PrioritizedBatch", "SumSegmentTree", "MinSegmentTree", "PrioritizedReplayBuffer"}
    names: dict[str, Any] = {"np": np, "torch": torch, "collections": collections, "deque": collections.deque}
    for node in ast.parse(Path(CLEANRL["file"]).read_text()).body:
        target = getattr(node, "targets", [None])[0]
        if {getattr(node, "name", None), getattr(target, "id", None)} & wanted:
            exec(compile(ast.Module([node], []), CLEANRL["file"], "exec"), names)
    buffer = names["PrioritizedReplayBuffer"](setting.capacity, setting.shape, "cpu", 1, 0.99, 0.6, 0.4)
    if setting.dtype != np.uint8:  # The script is for images.
        for name in ("buffer_obs", "buffer_next_obs"):
            setattr(buffer, name, np.zeros((setting.capacity, *setting.shape), setting.dtype))
    first = 0
    for rows in setting.chunks():
        part = slice(first, first := first + len(rows["done"]))
        for name, key in (("obs", "obs"), ("next_obs", "obs"), ("actions", "action"), ("rewards", "reward")):
            getattr(buffer, f"buffer_{name}")[part] = rows[key]
        weights = rows["priority"] ** 0.6
        # The leaves of its trees; the sums above them are computed below, all at once.
        at = slice(part.start + setting.capacity - 1, part.stop + setting.capacity - 1)
        buffer.sum_tree.tree[at] = buffer.min_tree.tree[at] = weights
    for depth in range(setting.capacity.bit_length(), -1, -1):
        nodes = np.arange(2**depth - 1, min(2 ** (depth + 1), setting.capacity) - 1)
        for tree, join in ((buffer.sum_tree.tree, np.add), (buffer.min_tree.tree, np.minimum)):
            tree[nodes] = join(tree[2 * nodes + 1], tree[2 * nodes + 2])
    buffer.size = setting.capacity

    def store(obs, after, action, reward, terminated, truncated):
        buffer.add(obs, action, reward, after, terminated)

    def draw():
        data = buffer.sample(setting.batch)
        return (
            data.observations,
            data.actions,
            data.rewards,
            data.dones.float(),
            data.next_observations,
            data.weights.float().flatten(),
            data.indices,
        )

    return store, draw, buffer.update_priorities


def _parl_rows(setting: Setting, kind: str):
    import parl

    make = parl.PrioritizedReplay if kind == "parl prioritized" else parl.UniformReplay
    pixels = (setting.shape, setting.dtype)
    replay = make(
        setting.capacity,
        {
            "obs": pixels,
            "next_obs": pixels,
            "action": ((), "int64"),
            "reward": ((), "float32"),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
        },
        num_envs=1,
        autoreset="same_step",
        seed=0,
    )
    for rows in setting.chunks():
        columns = {name: rows[name] for name in ("obs", "action", "reward")}
        no = np.zeros(len(rows["done"]), np.bool_)
        replay.add(
            **columns,
            next_obs=rows["obs"],
            terminated=rows["done"],
            truncated=no,
            env_id=no.astype(np.int64),
            priorities=rows["priority"],
        )

    def store(obs, after, action, reward, terminated, truncated):
        replay.add(
            obs=obs[None],
            next_obs=after[None],
            action=np.array([action]),
            reward=np.array([reward], np.float32),
            terminated=np.array([terminated]),
            truncated=np.array([truncated]),
        )

    def draw():
        data = replay.sample(setting.batch, beta=0.4, as_torch=True)
        return (
            data["obs"],
            data["action"],
            data["reward"],
            data["terminated"].float(),
            data["next_obs"],
            data["weights"],
            None if kind == "parl uniform" else data["tickets"],
        )

    return store, draw, replay.update_priorities


# library: function that makes a variant, its variants, and the pairs that are compared
GROUPS: dict[str, tuple[Callable[[Setting, str], Variant], list[str], list[tuple[str, str]]]] = {
    "sb3": (
        sb3,
        ["own uniform", "parl uniform", "parl prioritized"],
        [("parl uniform", "own uniform"), ("parl prioritized", "own uniform")],
    ),
    "torchrl": (
        torchrl,
        ["own prioritized", "own uniform", "parl sampler", "parl prioritized"],
        [
            ("parl prioritized", "own prioritized"),
            ("parl sampler", "own prioritized"),
            ("parl prioritized", "own uniform"),
        ],
    ),
    "tianshou": (
        tianshou,
        ["own prioritized", "own uniform", "parl prioritized"],
        [("parl prioritized", "own prioritized"), ("parl prioritized", "own uniform")],
    ),
    "one-file": (
        one_file,
        ["own uniform", "own prioritized", "cpprb prioritized", "parl uniform", "parl prioritized"],
        [
            ("parl uniform", "own uniform"),
            ("parl prioritized", "own uniform"),
            ("parl prioritized", "cpprb prioritized"),
            ("parl prioritized", "own prioritized"),
        ],
    ),
}


def version_of_replay(name: str, kind: str) -> str:
    """The package of a group's loop and its version; in the loop of one file that of the buffer."""
    if name == "one-file":
        packages = {"own uniform": "stable-baselines3", "cpprb prioritized": "cpprb"}
        if kind not in packages:
            return "CleanRL's rainbow_atari.py" if kind == "own prioritized" else ""
        package = packages[kind]
    else:
        package = {"sb3": "stable-baselines3"}.get(name, name)
    return f"{package} {version_of(package)}"


def measure(name: str, setting: Setting, rounds: int, steps: int, record: Record) -> None:
    make, kinds, pairs = GROUPS[name]
    if name == "one-file" and not CLEANRL:
        kinds = [kind for kind in kinds if kind != "own prioritized"]
        pairs = [pair for pair in pairs if pair[1] != "own prioritized"]
    variants = {kind: make(setting, kind) for kind in kinds}
    for run, _ in variants.values():
        run(max(steps // 4, 8))
    figures: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    for turn in range(rounds):
        for kind in kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]:
            run, timed = variants[kind]
            inside, cpu, wall = timed.seconds, time.process_time(), time.perf_counter()
            run(steps)
            figures[kind].append(
                tuple(
                    value / steps * 1e6
                    for value in (
                        time.process_time() - cpu,
                        time.perf_counter() - wall,
                        timed.seconds - inside,
                    )
                )
            )
    shape = "84x84 uint8, stacked 4 when drawn" if setting.stacked else "84x84x4 uint8"
    rows = f"{setting.capacity} rows of {shape if setting.pixels else '4 float32'}"
    work = f"batch {setting.batch}, {setting.updates} update{'s' * (setting.updates > 1)} a step"
    record.print(f"\n{name}, {rows}, {work}, {rounds} rounds of {steps} steps; us of CPU time per step")
    libraries = {"sb3": "Stable-Baselines3", "torchrl": "TorchRL", "tianshou": "Tianshou"}
    library = libraries.get(name, "one-file loop with CleanRL's settings")
    case = f"{library}, {shape if setting.pixels else '4 float32'}, {work}"
    about = {"rounds": rounds, "steps": steps, "threads": 1, "spread": "quartiles"}
    about |= {"conditions": f"{setting.capacity} rows"}
    record.print(f"{'':20}{'whole step':>12}{'in the buffer':>16}{'its share':>12}")
    for kind in kinds:
        per_step, _, of_it = zip(*figures[kind], strict=True)
        who = {"library": kind, "version": version_of_replay(name, kind)} | about
        record.add("replay-loops", case, "processor time per step", "us", per_step, **who)
        record.add("replay-loops", case, "of it in the replay", "us", of_it, **who)
        whole, _, inside = (statistics.median(values) for values in zip(*figures[kind], strict=True))
        record.print(f"{kind:20}{whole:12.0f}{inside:16.1f}{inside / whole:12.0%}")
    record.print(
        f"{'steps per second':42}{'CPU time':>18}{'wall':>20}{'buffer alone':>14}{'free buffer':>13}   bar"
    )
    for mine, peer in pairs:
        ratios = [
            [theirs[i] / ours[i] for ours, theirs in zip(figures[mine], figures[peer], strict=True)]
            for i in range(3)
        ]
        cpu, wall, inside = (statistics.quantiles(values, n=4) for values in ratios)
        limit = statistics.median(whole / (whole - buffer) for whole, _, buffer in figures[peer])
        bar = BARS.get(peer)
        pair = {"library": mine, "peer": peer, "version": version_of_replay(name, peer)} | about
        asked = {"bar": "" if bar is None else f">= {bar}"}
        record.add("replay-loops", case, "speed ratio", "x", ratios[0], **asked, **pair)
        record.add("replay-loops", case, "wall-clock speed ratio", "x", ratios[1], **pair)
        record.add("replay-loops", case, "replay alone speed ratio", "x", ratios[2], **pair)
        record.add("replay-loops", case, "free replay speed ratio", "x", limit, **pair)
        verdict = "" if bar is None else f"{bar} {'met' if cpu[1] >= bar else 'missed'}"
        if bar is not None and cpu[1] < bar and limit < bar:
            verdict = f"{bar} out of reach"
        record.print(
            f"{f'{mine} / {peer}':42}{cpu[1]:6.2f} ({cpu[0]:.2f}..{cpu[2]:.2f})"
            f"{wall[1]:8.2f} ({wall[0]:.2f}..{wall[2]:.2f}){inside[1]:12.1f} x{limit:13.2f}   {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument(
        "--rows", nargs="+", choices=["numbers", "pixels", "stacked"], default=["numbers", "pixels"]
    )
    parser.add_argument("--capacity", type=int, default=1_000_000, help="rows of numbers")
    parser.add_argument("--pixel-capacity", type=int, default=10_000, help="rows of pixels, 56 kB each")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--updates", type=int, default=1, help="gradient steps per environment step")
    parser.add_argument("--cleanrl", help="path of CleanRL's rainbow_atari.py, to measure its buffer")
    parser.add_argument("--network", choices=["small", "nature"], default="small")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=200, help="environment steps per round and variant")
    add_option(parser, "loops")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # Compares work, not numbers of threads.
    torch.set_num_threads(1)
    if arguments.cleanrl:
        CLEANRL["file"] = arguments.cleanrl

    record = Record(
        arguments.record, "Training loops of other libraries with their own replay and with parl's"
    )
    for kind in arguments.rows:
        pixels = kind != "numbers"
        capacity = arguments.pixel_capacity if pixels else arguments.capacity
        setting = Setting(kind, capacity, arguments.batch, arguments.network, arguments.updates)
        # Only Tianshou's buffer builds stacks from single frames when rows are sampled.
        for name in arguments.libraries if kind != "stacked" else ["tianshou"]:
            steps = arguments.steps if not pixels else max(arguments.steps // 2, 8)
            measure(name, setting, arguments.rounds, steps, record)
    if arguments.record:
        print(f"recorded in {record.write()}")


if __name__ == "__main__":
    main()
