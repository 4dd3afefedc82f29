"""``parl bench atari``: frames per second with and without a policy and with training.

For each number of environments there are three measurements: environments alone with random actions,
environments and the Nature CNN that chooses their actions ("inference"), and training. Frames are emulated
frames, skipped ones included. A rollout has at most :data:`ROWS` steps of all environments together, and a
minibatch is a quarter of a rollout. Training on a GPU has the precision, memory layout and graphs of the
presets ``atari-gpu``.

Measurements begin after random steps, when environments are at different points of their episodes. Right
after a reset they are alike, and a GPU, whose threads run in step, is several times faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parl.bench.loops import (
    GpuUtilization,
    axes_of,
    check_figure,
    check_seconds,
    figure_line,
    make_loop,
    rates,
    save,
    table,
)
from parl.cuda import ordinal
from parl.envs import usable_cores
from parl.errors import ParlError
from parl.train.presets import PRESETS
from parl.train.registry import entry, topology_of

ROWS, _SHORTEST = 16_384, 4
_SKIP = 4
# Steps before a measurement; one of environments begins after these seconds anyway.
_WARM_UP_STEPS, _WARM_UP_S = 100, 5.0
_EXECUTION = ("precision", "channels_last", "cuda_graph")
_DEFAULTS = {"cpu": (1, 8, 64, 512), "cuda": (1, 1_024, 4_096, 32_768)}


@dataclass(frozen=True)
class AtariOptions:
    """Measure frames per second of environments, inference and training over numbers of environments."""

    game: str = "pong"
    """Id of the Atari game."""
    num_envs: tuple[int, ...] = ()
    """Numbers of environments; by default 1 8 64 512 on the CPU and 1 1024 4096 32768 on a GPU."""
    device: str = "cpu"
    """Device of environments and networks: cpu or cuda."""
    algorithms: tuple[str, ...] = ("ppo",)
    """Algorithms to train, which must learn from rollouts: ppo, pqn, a2c, impala, a3c, ga3c."""
    seconds: float = 5.0
    """Smallest duration of each measurement."""
    threads: int = 0
    """Number of torch threads; 0 for one per core."""
    out: Path = Path("atari-rates.png")
    """File of the figure."""

    def __post_init__(self) -> None:
        if self.device != "cpu":
            ordinal(self.device)
        if any(count < 1 for count in self.num_envs):
            raise ParlError(f"num_envs has {min(self.num_envs)}, expected at least 1")
        if not 0 <= self.threads <= 4096:
            raise ParlError(f"threads is {self.threads}, expected 0 to 4096")
        check_seconds(self.seconds)
        for name in self.algorithms:
            if not hasattr(topology_of(name).config, "random_starts") or entry(name).topology == "data":
                raise ParlError(f"algorithms has {name!r}, which does not learn from rollouts")
        check_figure(self.out)


def bench(options: AtariOptions) -> Iterator[str]:
    """Runs the benchmark and writes the figure; yields the lines to print."""
    import torch

    torch.set_num_threads(options.threads or usable_cores())
    numbers = options.num_envs or _DEFAULTS[options.device.split(":")[0]]
    columns = ["environments", "random actions", "inference"]
    columns += [f"training {name}" for name in options.algorithms]
    columns += [f"updates/s {name}" for name in options.algorithms] + ["GPU utilization"]
    where = f"{options.device}, {usable_cores()} cores"
    yield f"{options.game}, frames per second on {where}, {options.seconds:g} s each"
    yield from table(columns, [])
    found: list[dict[str, float]] = []
    for count in numbers:
        row = _row(options, count)
        found.append(row)
        cells = {name: f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for name, value in row.items()}
        if "GPU utilization" in row:
            cells["GPU utilization"] = f"{100 * row['GPU utilization']:.0f} %"
        yield table(columns, [cells])[-1]
    yield figure_line(lambda: draw(found, options))


def _row(options: AtariOptions, count: int) -> dict[str, float]:
    row = {"environments": float(count)}
    env, act, close = _environment(options, count)
    row["random actions"] = _frames(env, lambda obs: env.action_space.sample(), options.seconds) * count
    row["inference"] = _frames(env, act, options.seconds) * count
    close()
    with GpuUtilization() as utilization:
        for name in options.algorithms:
            report = _training(options, name, count)
            row[f"training {name}"] = float(report["env_steps_per_s"]) * _SKIP
            row[f"updates/s {name}"] = float(report["updates_per_s"])
    if utilization.mean is not None:
        row["GPU utilization"] = utilization.mean
    return row


def _training(options: AtariOptions, name: str, count: int) -> dict[str, Any]:
    from parl.ops.execution import WARM_UP

    own: dict[str, Any] = {"rollout_steps": max(_SHORTEST, min(128, ROWS // count))}
    own["random_starts"] = _WARM_UP_STEPS
    on_device = options.device.split(":")[0] != "cpu"
    if on_device:
        preset = PRESETS[name].get("atari-gpu")
        settings = preset.algorithm if preset is not None else {}
        own |= {key: settings[key] for key in _EXECUTION if key in settings}
    elif hasattr(topology_of(name).config, "threads"):
        own["threads"] = options.threads or usable_cores()
    if name in ("ppo", "pqn"):
        own["minibatch_size"] = max(1, own["rollout_steps"] * count // 4)
    env_options = [f"device={options.device}"] if options.device != "cpu" else []
    loop = make_loop(
        name, f"parl/{_camel(options.game)}-v0", env_options, num_envs=count, device=options.device, **own
    )
    try:
        # Graphs are recorded after the first rollouts.
        for _ in range(WARM_UP + 1 if on_device else 0):
            loop.advance(loop.env_steps + 1, 60.0)
        return rates(loop, options.seconds)
    finally:
        loop.close()


def _camel(game: str) -> str:
    return "".join(word.capitalize() for word in game.split("_"))


def _environment(options: AtariOptions, count: int) -> tuple[Any, Callable[[Any], Any], Callable[[], None]]:
    """Makes environments, a policy that samples from a new network, and a function that closes them."""
    import torch

    from parl.envs import AtariVectorEnv
    from parl.nets.actor_critic import ActorCritic

    env: Any = AtariVectorEnv(options.game, count, device=options.device)
    shape = env.single_observation_space.shape
    network = ActorCritic(shape, "uint8", int(env.single_action_space.n), (512,), True, "relu", False)
    network = network.to(options.device)

    def act(obs: Any) -> Any:
        with torch.inference_mode():
            logits = network.policy_of(obs if isinstance(obs, torch.Tensor) else torch.from_numpy(obs))
            drawn = (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=1)
            return drawn if isinstance(obs, torch.Tensor) else drawn.numpy()

    return env, act, env.close


def _frames(env: Any, act: Callable[[Any], Any], seconds: float) -> float:
    """Frames per second of each environment of ``env``, with actions of ``act``."""
    obs = _warm_up(env)
    for _ in range(3):
        obs = env.step(act(obs))[0]
    _synchronize(obs)
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for _ in range(8):
            obs = env.step(act(obs))[0]
        _synchronize(obs)
        steps += 8
    return steps * _SKIP / elapsed


def _warm_up(env: Any) -> Any:
    """Resets ``env`` and takes random steps; returns the observations."""
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    end = time.perf_counter() + _WARM_UP_S
    for step in range(_WARM_UP_STEPS):
        obs = env.step(env.action_space.sample())[0]
        if step % 10 == 9:
            _synchronize(obs)
            if time.perf_counter() > end:
                break
    return obs


def _synchronize(obs: Any) -> None:
    """Waits until a device has computed ``obs``."""
    if not isinstance(obs, np.ndarray):
        obs[:1].cpu()


def draw(rows: list[dict[str, float]], options: AtariOptions) -> Path:
    """Draws frames per second over the number of environments; returns the path of the figure."""
    figure, axes = axes_of(7, 4.5)
    counts = [row["environments"] for row in rows]
    for name in rows[0]:
        if name not in ("environments", "GPU utilization") and not name.startswith("updates"):
            axes[0][0].plot(counts, [row[name] for row in rows], "o-", label=name)
    axes[0][0].set(xscale="log", yscale="log", xlabel="environments", ylabel="frames per second")
    axes[0][0].set_title(f"{options.game}, {options.device}")
    axes[0][0].legend()
    return save(figure, options.out)
