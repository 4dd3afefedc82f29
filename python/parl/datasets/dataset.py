"""Reading of datasets: :func:`load` and :class:`Dataset`."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parl.datasets.format import (
    ENDS,
    Episode,
    EpisodeInfo,
    decode_record,
    read_header,
    read_index,
    read_record,
)
from parl.errors import DatasetError

if TYPE_CHECKING:
    from parl.datasets.access import SeekConsole
    from parl.envs import AtariVectorEnv

_HEADER = {"game": str, "rom_md5": str, "actions": list, "interval": int, "env_options": dict}
_REPLAYED = 64


def load(path: str | Path) -> Dataset:
    """Opens a dataset.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: there is no such file.
        DatasetError: the file is not a dataset, is unfinished or damaged, or is of a newer version.
    """
    return Dataset(path)


class Dataset:
    """A dataset that :func:`record` wrote. It can be pickled and used in several processes.

    Header and index are read and checked at once, the record of an episode when it is needed.

    Attributes:
        path: the file.
        header: game, ROM, settings of the environments, and how the dataset was recorded.
        game: id of the game.
        env_options: keywords of :class:`parl.AtariVectorEnv` with which it was recorded.
        interval: number of steps between two hashes of an episode.
        version: of the file's format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header, first, self.version = read_header(self.path)
        for name, kind in _HEADER.items():
            if not isinstance(self.header.get(name), kind):
                raise DatasetError(f"{path} has {name} = {self.header.get(name)!r} in its header")
        if self.header["interval"] < 1:
            raise DatasetError(
                f"{path} has interval = {self.header['interval']} in its header, expected at least 1"
            )
        self._index = read_index(self.path, first)
        # Made by the first :meth:`state_at`.
        self._console: SeekConsole | None = None
        self.game: str = self.header["game"]
        self.interval: int = self.header["interval"]
        # JSON has no tuples, such as the bounds of a random frame skip.
        self.env_options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.header["env_options"].items()
        }

    @property
    def num_steps(self) -> int:
        """Number of steps of all episodes."""
        return int(self._index["steps"].sum())

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return len(self._index)

    def __len__(self) -> int:
        """Number of steps, as of other datasets of transitions."""
        return self.num_steps

    @property
    def num_actions(self) -> int:
        """Number of actions of the environments."""
        return len(self.header["actions"])

    @property
    def episodes(self) -> list[EpisodeInfo]:
        """Number, steps, return and end of each episode."""
        return [
            EpisodeInfo(number, int(row["steps"]), int(row["episode_return"]), ENDS[row["end"]])
            for number, row in enumerate(self._index)
        ]

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    def actions(self, episode: int) -> NDArray[np.uint8]:
        """The actions of an episode, (steps,).

        Raises:
            IndexError: there is no such episode.
            DatasetError: its record is damaged.
        """
        return self.read(episode).actions.copy()

    def read(self, number: int) -> Episode:
        """What is stored of an episode: seed, actions, hashes and checkpoints.

        Raises:
            IndexError: there is no such episode.
            DatasetError: the record is damaged.
        """
        return self.read_with_record(number)[1]

    def read_with_record(self, number: int) -> tuple[bytes, Episode]:
        """As :meth:`read`, after the bytes of the record."""
        if not 0 <= number < len(self._index):
            raise IndexError(f"episode {number} is outside 0 to {len(self._index) - 1}")
        row = self._index[number]
        what = f"episode {number}"
        record = read_record(self.path, int(row["position"]), what)
        try:
            episode = decode_record(record, self.num_actions, self.interval, self.version)
        except ValueError as error:
            raise DatasetError(f"{self.path} is damaged: the record of {what}: {error}") from None
        if (len(episode.actions), episode.end) != (row["steps"], row["end"]):
            raise DatasetError(f"{self.path} is damaged: the record of {what} is not that of the index")
        return record, episode

    def make_envs(self, num_envs: int = 1, **options: Any) -> AtariVectorEnv:
        """Environments with the settings of the dataset, for evaluations or to load :meth:`state_at`.

        Args:
            num_envs: number of environments.
            **options: those of :meth:`replay`, and ``autoreset_mode``.
        """
        from parl.datasets import options as settings
        from parl.envs import AtariVectorEnv

        mode = {name: options.pop(name) for name in ["autoreset_mode"] if name in options}
        threads, chosen = settings.split_threads(options)
        view = settings.view_options(self.env_options, chosen)
        return AtariVectorEnv(self.game, num_envs, **view, **threads, **mode)

    def replay(
        self,
        *,
        batch_size: int = _REPLAYED,
        episodes: Sequence[int] | None = None,
        verify: bool = True,
        **options: Any,
    ) -> Iterator[dict[str, Any]]:
        """Plays the recorded episodes again and yields their steps, on all cores.

        ``batch_size`` episodes are played at the same time. Each yield holds one step of each of them: arrays
        ``observation``, ``action``, ``reward``, ``next_observation`` (the last one of an episode included),
        ``terminated``, ``truncated`` (also true at the last step of an episode that the recording cut),
        ``episode`` (its number), ``step`` (from 0 on) and ``env_id`` (which of the ``batch_size``
        environments played it). There are fewer rows when fewer episodes are left. The rows of an episode are
        the same whatever ``batch_size``, threads and order are. Arrays stay as they are, but may be shared
        between two yields: change copies of them.

        Args:
            batch_size: number of episodes that are played at the same time.
            episodes: numbers of the episodes, in the order in which they begin; None for all.
            verify: whether the replay is compared with the hashes of the recording.
            **options: keywords of :class:`parl.AtariVectorEnv` that shape observations, rewards and flags
                (``obs_type``, ``img_height``, ``img_width``, ``grayscale``, ``stack_num``, ``channel_order``,
                ``maxpool``, ``padding``, ``reward_clipping``, ``reward_dtype``, ``show_last_frame``,
                ``allow_terminated_and_truncated``; ``life_loss`` of ``"plain"`` and ``"reports"``), and
                ``num_threads``; by default those of the recording.

        Raises:
            ConfigError: an option is unknown, or is one on which the recorded actions depend.
            AtariError: an option or ``batch_size`` is out of its bounds.
            IndexError: there is no such episode.
            DatasetError: the file is damaged, the ROM is another one, or the replay differs.
        """
        from parl.datasets.options import split_threads, view_options
        from parl.datasets.replaying import Replay
        from parl.envs.atari import arguments

        count = arguments.integer("batch_size", batch_size, 1, arguments.INT32_MAX)
        order = (
            range(self.num_episodes) if episodes is None else [operator.index(number) for number in episodes]
        )
        for number in order:
            if not 0 <= number < self.num_episodes:
                raise IndexError(f"episode {number} is outside 0 to {self.num_episodes - 1}")
        threads, chosen = split_threads(options)
        view = view_options(self.env_options, chosen)
        return iter(Replay(self, order, count, view, threads, verify))

    def fill(self, replay: Any, *, steps: int | None = None, **options: Any) -> int:
        """Adds the steps of a :meth:`replay` to a replay buffer.

        Args:
            replay: a :class:`parl.UniformReplay`, :class:`parl.PrioritizedReplay` or
                :class:`parl.SequenceReplay` with the fields ``obs``, ``action``, ``reward``, ``terminated``
                and ``truncated``, and ``num_envs`` of at least ``batch_size``.
            steps: number of steps after which to stop; None for all.
            **options: those of :meth:`replay`.

        Returns:
            The number of steps added.
        """
        from parl.datasets.buffers import fill

        return fill(self, replay, steps, options)

    def verify(self, *, batch_size: int = _REPLAYED) -> int:
        """Plays every episode again, without pictures, and compares it with its hashes and checkpoints.

        Args:
            batch_size: number of episodes that are played at the same time.

        Returns:
            The number of steps.

        Raises:
            DatasetError: the file is damaged, or a replay differs; the message names the episode.
        """
        from parl.datasets.access import verify

        return verify(self, batch_size)

    def state_at(self, episode: int, step: int) -> NDArray[np.uint8]:
        """The state before a step of an episode, from the checkpoint before it.

        Args:
            episode: number of the episode.
            step: 0 for the start, up to the number of its steps for the end.

        Returns:
            (size,) uint8, a state for ``set_state`` and ``seed_states`` of environments of
            ``make_envs(obs_type="ram", stack_num=None, reward_clipping=False)``.

        Raises:
            IndexError: there is no such episode or step.
            DatasetError: the file is damaged, or the ROM is another one.
        """
        if self._console is None:
            from parl.datasets.access import SeekConsole

            self._console = SeekConsole(self)
        return self._console.state_at(self, episode, step)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_console": None}

    def __repr__(self) -> str:
        size = f"{self.num_episodes:,} episodes, {self.num_steps:,} steps"
        return f"Dataset({str(self.path)!r}: {self.game}, {size})"
