"""Recording of datasets: :func:`record`, and :func:`from_play` for what ``parl play --record`` wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import parl
from parl.atari.catalogue import game_id
from parl.atari.recording import check_play, read_arrays, settings_of
from parl.datasets import policies
from parl.datasets.checkpoints import STATE_VERSION
from parl.datasets.consoles import LoggedConsoles, draw_seeds, masked
from parl.datasets.dataset import Dataset, load
from parl.datasets.format import Writer
from parl.datasets.options import (
    expand,
    make_envs,
    patched_md5,
    resolve,
    rom_md5,
    split_threads,
    view_options,
)
from parl.envs.atari import arguments
from parl.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from parl.envs import AtariVectorEnv

_MOST_STEPS = 2**40
# Settings with which `parl play --record` plays.
_PLAY: dict[str, Any] = {
    "noop_max": 0,
    "noops": "after_fire",
    "use_fire_reset": False,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "patches": None,
    "ram": None,
    "hold": None,
    "modifications": None,
}


def record(
    game: str,
    path: str | Path,
    steps: int,
    *,
    seed: int = 0,
    policy: Any = None,
    num_envs: int = 64,
    compress: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **env_options: Any,
) -> Dataset:
    """Records a dataset of a game.

    An episode is a whole game: it begins with a reset with a seed of its own. The file appears under its name
    when it is complete; until then its episodes are in ``path`` with ``.part`` at the end, each as soon as it
    has ended, and :func:`recover` keeps them if the recording is killed.

    Args:
        game: id of the game.
        path: the file; its folder is made if missing.
        steps: number of steps; the episodes that run at the end are cut.
        seed: of the episodes' seeds and of random actions. The same seed, number of environments and policy
            give the same file.
        policy: None for uniformly random actions; a function of observations (N, ...) that returns actions
            (N,); a :class:`parl.train.policy.Policy` of :func:`parl.load`, or the path of a run, which act
            greedily.
        num_envs: number of environments that play at the same time.
        compress: whether actions are compressed with zlib, which pays where a policy repeats its actions.
        overwrite: whether an existing file is replaced.
        progress: called now and then with the number of steps so far and of all steps.
        **env_options: keywords of :class:`parl.AtariVectorEnv`, and ``preset`` as of :func:`parl.make_vec`.
            Those of observations are what a policy sees and a replay shows unless it chooses others. A policy
            of a run brings those of its run.

    Returns:
        The dataset.

    Raises:
        ConfigError: an option is unknown, or the policy returned other actions.
        AtariError: an option or number is out of its bounds.
        FileExistsError: the file exists already.
        FileNotFoundError: there is no ROM of the game.
    """
    game = game_id(game)
    steps = arguments.integer("steps", steps, 1, _MOST_STEPS)
    num_envs = arguments.integer("num_envs", num_envs, 1, arguments.INT32_MAX)
    seed = arguments.integer("seed", seed, 0, arguments.INT64_MAX)
    threads, env_options = split_threads(env_options)
    chosen = policies.load_policy(policy)
    own = policies.options_of(chosen, game)
    given = {**own, **expand(env_options)}
    options = resolve(game, given)
    consoles = LoggedConsoles(game, num_envs, options, threads)
    rng = np.random.default_rng(seed)
    act = policies.acting(chosen, len(consoles.envs.action_codes), rng)
    shown = make_envs(game, num_envs, view_options(options, {}), threads) if act.needs_pictures else None
    about = {"steps": steps, "seed": seed, "num_envs": num_envs, "policy": _name_of(policy)}
    if given.get("modifications") is not None:
        about["modifications"] = given["modifications"]
    header = header_of(game, options, consoles, about)
    try:
        with contextlib.closing(Writer(path, header, compress=compress, overwrite=overwrite)) as writer:
            _play(consoles, shown, act, rng, steps, writer, progress)
            return load(writer.finish())
    finally:
        consoles.close()
        if shown is not None:
            shown.close()


def _play(
    consoles: LoggedConsoles,
    shown: AtariVectorEnv | None,
    act: Any,
    rng: np.random.Generator,
    steps: int,
    writer: Writer,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Steps consoles, and the environments that the policy sees if it needs any, and writes episodes."""
    count = consoles.num_envs
    starts = np.ones(count, bool)
    seeds = draw_seeds(rng, count)
    consoles.reset(seeds, starts)
    obs: Any = np.empty((count, 0))
    if shown is not None:
        obs, _ = shown.reset(seed=seeds)
    done = logged = 0
    over = np.zeros(count, bool)
    while done < steps:
        actions = act(obs, starts)
        logged = min(count, steps - done)
        ended, over, ram = consoles.step(actions, logged)
        done += logged
        if shown is not None:
            obs, *_, infos = shown.step(actions)
            if not np.array_equal(infos["ram"], ram):
                raise DatasetError(f"{writer.path}: two environments with the same actions differ")
        if progress is not None:
            progress(done, steps)
        if done == steps:
            break
        starts = ended
        if not ended.any():
            continue
        for i in np.nonzero(over)[0].tolist():
            consoles.write(i, writer, cut=False)
        seeds = np.where(over, draw_seeds(rng, count), -1)
        consoles.reset(seeds, ended)
        if shown is not None:
            obs, _ = shown.reset(seed=seeds[ended], options={"reset_mask": ended})
    for i in range(count):
        is_over = bool(over[i]) and i < logged
        consoles.write(i, writer, cut=not is_over)


def header_of(
    game: str, options: Mapping[str, Any], consoles: LoggedConsoles, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The header of a dataset."""
    return {
        "game": game,
        "rom_md5": rom_md5(game),
        **({"patched_md5": patched_md5(game, options["patches"])} if "patches" in options else {}),
        "actions": list(consoles.envs.action_codes),
        "interval": consoles.interval,
        "states": STATE_VERSION,
        "env_options": dict(options),
        "recorded": dict(about),
        "parl": parl.__version__,
    }


def from_play(play: str | Path, path: str | Path, *, overwrite: bool = False, **env_options: Any) -> Dataset:
    """Makes a dataset of a file of ``parl play --record``.

    Args:
        play: the ``.npz`` file.
        path: the file of the dataset.
        overwrite: whether an existing file is replaced.
        **env_options: keywords of observations, rewards, lives and limits, as of :func:`record`. What else a
            preset sets is as it was played.

    Raises:
        ConfigError: an option is unknown, or another one than the game was played with.
        DatasetError: ``play`` is not such a file, or plays on after the end of a game.
        FileExistsError: the file of the dataset exists already.
    """
    try:
        columns = read_arrays(play)
        check_play(columns)
    except ValueError as error:
        raise DatasetError(f"{play} is not a file of parl play --record: {error}") from None
    actions, starts = columns["actions"], columns["starts"].tolist()
    game = str(columns["game"])
    played = {**_PLAY, **settings_of(columns)}
    for name, value in env_options.items():
        if name in played and value != played[name]:
            raise ConfigError(f"{name} is {value!r}, but play is recorded with {played[name]!r}")
    options = resolve(game, {**env_options, **played})
    episodes = [part for part in np.split(actions, starts[1:]) if len(part)]
    return log_episodes(path, game, options, [(0, part) for part in episodes], str(play), overwrite)


def log_episodes(
    path: str | Path,
    game: str,
    options: Mapping[str, Any],
    episodes: list[tuple[int, Any]],
    source: str,
    overwrite: bool = False,
) -> Dataset:
    """Writes a dataset of given seeds and actions, which consoles play once for the hashes.

    Raises:
        DatasetError: an episode goes on after the end of its game, or has actions that the game does not.
    """
    consoles = LoggedConsoles(game, 1, options)
    _check_actions(source, episodes, len(consoles.envs.action_codes))
    header = header_of(game, options, consoles, {"source": source})
    writer = Writer(path, header, overwrite=overwrite)
    everything = masked(1, [0])
    over = np.zeros(1, bool)
    try:
        for number, (seed, actions) in enumerate(episodes):
            consoles.reset(np.array([seed]), everything)
            for step, action in enumerate(np.asarray(actions).tolist()):
                ended, over, _ = consoles.step(np.array([action]), 1)
                if over[0] and step + 1 < len(actions):
                    raise DatasetError(
                        f"{source}: the game of episode {number} ends with step {step}, but it has "
                        f"{len(actions)} steps"
                    )
                if ended[0] and not over[0]:
                    consoles.reset(np.array([-1]), everything)
            consoles.write(0, writer, cut=not over[0])
        return load(writer.finish())
    except BaseException:
        writer.discard()
        raise
    finally:
        writer.close()
        consoles.close()


def _check_actions(source: str, episodes: Sequence[tuple[int, Any]], count: int) -> None:
    """Checks that the actions of all episodes are integers in 0..count - 1.

    Raises:
        DatasetError: names the episode and the action.
    """
    for number, (_, given) in enumerate(episodes):
        actions = np.asarray(given)
        if actions.ndim != 1 or actions.dtype.kind not in "iu":
            raise DatasetError(
                f"{source}: the actions of episode {number} are {actions.dtype} of shape {actions.shape}, "
                "expected integers, one for each step"
            )
        wrong = (actions < 0) | (actions >= count)
        if wrong.any():
            raise DatasetError(
                f"{source}: episode {number} has the action {actions[wrong][0]}, expected 0 to {count - 1}"
            )


def _name_of(policy: Any) -> str:
    if policy is None:
        return "random"
    policy = getattr(policy, "run", policy)
    return str(policy) if isinstance(policy, str | Path) else getattr(policy, "__name__", repr(policy))
