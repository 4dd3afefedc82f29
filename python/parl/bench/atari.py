"""``parl bench atari``: frames per second with a policy and with learning, over numbers of environments.

Every number of environments is measured three times: environments alone with random actions, environments and
the Nature CNN that chooses their actions ("inference"), and whole training. Frames are those of the console,
skipped ones counted. Rollouts are shortened where many environments make them long, so that one holds
:data:`ROWS` steps at most, and minibatches are a quarter of a rollout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parl.bench.loops import GpuBusy, axes_of, make_loop, rates, save, table
from parl.envs import usable_cores
from parl.errors import ParlError

ROWS, _SHORTEST = 16_384, 4
_SKIP = 4
_DEFAULTS = {"cpu": (1, 8, 64, 512), "cuda": (1, 1_024, 4_096, 32_768)}


@dataclass(frozen=True)
class AtariOptions:
    """Frames a second with a policy and with learning, over numbers of environments: a table and a figure."""

    game: str = "pong"
    """The game."""
    num_envs: tuple[int, ...] = ()
    """Numbers of environments; none: 1 8 64 512 on the processor, 1 1024 4096 32768 on a GPU."""
    device: str = "cpu"
    """Where environments and networks are: cpu or cuda."""
    algorithms: tuple[str, ...] = ("ppo",)
    """What is trained: algorithms that learn from rollouts."""
    seconds: float = 5.0
    """Of each measurement, at least."""
    threads: int = 0
    """Of torch; 0: one per core."""
    out: Path = Path("atari-rates.png")
    """Figure to write."""

    def __post_init__(self) -> None:
        if self.device.split(":")[0] not in _DEFAULTS:
            raise ParlError(f"device = {self.device!r} is neither cpu nor cuda")
        if any(count < 1 for count in self.num_envs):
            raise ParlError(f"num_envs = {min(self.num_envs)} is below 1")
        if not 0 <= self.threads <= 4096:
            raise ParlError(f"threads = {self.threads} is not in 0..4096")
        if not self.seconds > 0:
            raise ParlError(f"seconds = {self.seconds} is not above 0")


def bench(options: AtariOptions) -> Iterator[str]:
    """Measures, writes the figure, and gives the lines to print as they come."""
    import torch

    torch.set_num_threads(options.threads or usable_cores())
    numbers = options.num_envs or _DEFAULTS[options.device.split(":")[0]]
    columns = ["environments", "random actions", "inference"]
    columns += [f"training {name}" for name in options.algorithms]
    columns += [f"updates/s {name}" for name in options.algorithms] + ["GPU busy"]
    where = f"{options.device}, {usable_cores()} cores"
    yield f"{options.game}, frames a second on {where}, {options.seconds:g} s each"
    yield from table(columns, [])
    found: list[dict[str, float]] = []
    for count in numbers:
        row = _row(options, count)
        found.append(row)
        cells = {name: f"{value:,.0f}" if value >= 10 else f"{value:.2g}" for name, value in row.items()}
        if "GPU busy" in row:
            cells["GPU busy"] = f"{100 * row['GPU busy']:.0f} %"
        yield table(columns, [cells])[-1]
    yield f"figure: {draw(found, options)}"


def _row(options: AtariOptions, count: int) -> dict[str, float]:
    row = {"environments": float(count)}
    env, act, close = _environment(options, count)
    row["random actions"] = _frames(env, lambda obs: env.action_space.sample(), options.seconds) * count
    row["inference"] = _frames(env, act, options.seconds) * count
    close()
    with GpuBusy() as busy:
        for name in options.algorithms:
            report = _training(options, name, count)
            row[f"training {name}"] = float(report["env_steps_per_s"]) * _SKIP
            row[f"updates/s {name}"] = float(report["updates_per_s"])
    if busy.mean is not None:
        row["GPU busy"] = busy.mean
    return row


def _training(options: AtariOptions, name: str, count: int) -> dict[str, Any]:
    own: dict[str, Any] = {"rollout_steps": max(_SHORTEST, min(128, ROWS // count)), "random_starts": 0}
    own["threads"] = options.threads or usable_cores()
    if name in ("ppo", "pqn"):
        own["minibatch_size"] = max(1, own["rollout_steps"] * count // 4)
    env_options = [f"device={options.device}"] if options.device != "cpu" else []
    loop = make_loop(
        name, f"parl/{_camel(options.game)}-v0", env_options, num_envs=count, device=options.device, **own
    )
    try:
        return rates(loop, options.seconds)
    finally:
        loop.close()


def _camel(game: str) -> str:
    return "".join(word.capitalize() for word in game.split("_"))


def _environment(options: AtariOptions, count: int) -> tuple[Any, Callable[[Any], Any], Callable[[], None]]:
    """Environments, a policy that draws from a fresh network, and what closes them."""
    import torch

    from parl.envs import AtariVectorEnv
    from parl.nets.actor_critic import ActorCritic

    env = AtariVectorEnv(options.game, count, device=options.device)
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
    """Frames a second of one environment of ``env``."""
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        obs = env.step(act(obs))[0]
    _wait(obs)
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for _ in range(8):
            obs = env.step(act(obs))[0]
        _wait(obs)
        steps += 8
    return steps * _SKIP / elapsed


def _wait(obs: Any) -> None:
    """Until ``obs`` is there: a device works on while the host goes on."""
    if not isinstance(obs, np.ndarray):
        obs[:1].cpu()


def draw(rows: list[dict[str, float]], options: AtariOptions) -> Path:
    """The figure: frames a second against environments, one line a column."""
    figure, axes = axes_of(7, 4.5)
    counts = [row["environments"] for row in rows]
    for name in rows[0]:
        if name not in ("environments", "GPU busy") and not name.startswith("updates"):
            axes[0][0].plot(counts, [row[name] for row in rows], "o-", label=name)
    axes[0][0].set(xscale="log", yscale="log", xlabel="environments", ylabel="frames a second")
    axes[0][0].set_title(f"{options.game}, {options.device}")
    axes[0][0].legend()
    return save(figure, options.out)
