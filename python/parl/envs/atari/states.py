"""Complete states of Atari environments: saving, loading, copying them, and running actions from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from parl.envs.atari import arguments
from parl.envs.atari.branches import BranchResult, check_actions, check_states, seed_list, sum_dtype
from parl.errors import AtariError

Arrays = NDArray[Any]
_ACTION_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))


class StatefulVectorEnv(VectorEnv[Any, Any, Any]):
    """The part of :class:`parl.AtariVectorEnv` that saves and loads states, and runs sequences of actions.

    The constructor of :class:`parl.AtariVectorEnv` sets the attributes.
    """

    players: int
    _native: Any
    _continuous: bool
    # Of an environment's action.
    _action_shape: tuple[int, ...]
    _seed_limit: int
    # Of the observations of a batch.
    _out_shape: tuple[int, ...]
    # Observations show images, not memory.
    _draws: bool
    _ram_info: bool
    _reward_dtype: np.dtype[Any]
    _torch: Callable[[Arrays], Any] | None

    def get_state(self, mask: Arrays | None = None) -> NDArray[np.uint8]:
        """Complete states of environments: consoles, random generators, counters and frame stacks.

        As in ale-py, the sound of a console is not part of its state; it goes on as it is after
        :meth:`set_state`.

        Args:
            mask: (N,) bool, the environments; None for all.

        Returns:
            (number of environments, size) uint8, one row each. A row has a checksum and the name of its game;
            it can be saved, sent to another process and loaded into any environment of the same game and
            settings.
        """
        self._check_open()
        return self._native.get_state(self._envs_of_mask(mask))

    def set_state(self, states: NDArray[np.uint8], mask: Arrays | None = None) -> None:
        """Restores states of :meth:`get_state`; later results are then the same, bit for bit.

        Args:
            states: (number of environments, size) uint8.
            mask: (N,) bool, the environments; None for all.

        Raises:
            AtariError: a row is damaged, or comes from another game, version or observation shape. No
                environment is changed.
        """
        self._check_open()
        self._put_states(arguments.byte_array("states", states), self._envs_of_mask(mask))

    def seed_states(self, state: NDArray[np.uint8], first: int = 0, last: int | None = None) -> None:
        """Copies one state, (size,) or (1, size) uint8, to environments ``first..last``, ``last`` excluded.

        Args:
            state: of :meth:`get_state`.
            first: number of the first environment.
            last: one past the last environment; None for N.

        Raises:
            AtariError: as :meth:`set_state`.
        """
        self._check_open()
        end = self.num_envs if last is None else arguments.integer("last", last, 0, self.num_envs)
        envs = list(range(arguments.integer("first", first, 0, end), end))
        self._put_state(arguments.byte_array("state", state).reshape(1, -1), envs)

    def clone(self, source: int, target: int | Sequence[int]) -> None:
        """Copies the state of environment ``source`` to the environments ``target``."""
        self._check_open()
        targets: Any = [target] if np.ndim(target) == 0 else target
        envs = arguments.env_numbers("target", targets, self.num_envs)
        (taken,) = arguments.env_numbers("source", [source], self.num_envs)
        self._put_state(self._take_states([taken]), envs)

    def branch(
        self, states: NDArray[np.uint8], actions: Any, *, observe: bool = True, seeds: Any = None
    ) -> BranchResult:
        """Runs sequences of actions from saved states, on all cores, for search and planning.

        The environments themselves do not change: neither their consoles nor their generators nor arrays
        that they returned. A sequence continues from its state exactly as an environment does that has loaded
        it with :meth:`set_state`; the results do not depend on the number of threads. All K sequences of a
        state begin with the same random generators, so that equal actions give equal results, sticky actions
        included, unless ``seeds`` are given.

        A sequence ends with the first step that sets ``terminated`` or ``truncated``: its further actions are
        not run, its observation and state are those after that step, and ``lengths`` counts the steps that
        have run. From a state whose episode has ended no action is run; the flags are those of its end.

        ``num_threads`` threads run the sequences, 0 for one per core; more than N are used here too.

        Args:
            states: (N, S) uint8 of :meth:`get_state` or of an earlier call (``result.states[:, k]``), of
                environments with the same games and the same size of observations.
            actions: (N, K, L) integers: K sequences of L actions for each state; with ``continuous``
                (N, K, L, 3) float32; with ``players=2`` (N, K, L, 2), or (N, K, L, 2, 3).
            observe: whether observations are made. Without, no frame is drawn, which takes less time; then
                ``states`` are returned only with ``obs_type`` of ``"ram"`` and ``"objects"``, since a state
                includes the images of its observation.
            seeds: (N, K) integers, the seed of the random generators of each sequence (sticky actions,
                random ``frameskip``, no-ops of later resets); negative to continue with those of the state.

        Returns:
            a :class:`~parl.envs.atari.branches.BranchResult` with ``observations`` (N, K, *shape),
            ``rewards`` and ``raw_rewards`` (N, K), with ``players=2`` (N, K, 2), ``terminated`` and
            ``truncated`` (N, K), ``lengths`` and ``lives`` (N, K), ``states`` (N, K, S), and with
            ``ram_info`` ``ram`` (N, K, 128).

        Raises:
            TypeError: states, actions or seeds have another dtype.
            AtariError: an array has another shape, an action is outside the action space, or a row of states
                is damaged or comes from another game, version or observation shape; the message names the
                row.
            MemoryError: the results need more memory than there is.

        Examples:
            >>> import numpy as np
            >>> import parl
            >>> envs = parl.AtariVectorEnv("breakout", num_envs=2)
            >>> obs, info = envs.reset(seed=0)
            >>> each = np.tile(np.arange(4)[:, None], (2, 1, 3))  # every action, three times in a row
            >>> result = envs.branch(envs.get_state(), each)
            >>> result.observations.shape, result.rewards.tolist()
            ((2, 4, 4, 84, 84), [[0, 0, 0, 0], [0, 0, 0, 0]])
        """
        self._check_open()
        rows = arguments.byte_array("states", states)
        check_states(rows)
        array = self._action_array(actions)
        count = len(rows)
        num_actions = None if self._continuous else len(self._native.actions)
        branches, steps = check_actions(array, count, num_actions, self._action_shape)
        seed = seed_list(seeds, (count, branches), self._seed_limit)
        shape = (count, branches, *self._out_shape[1:])
        obs = np.empty(shape, np.uint8) if observe else None
        ram = np.empty((count, branches, 128), np.uint8) if self._ram_info else None
        saves = observe or not self._draws
        flat = array.reshape(count * branches * steps, *self._action_shape)
        numbers, flags, after = self._native.branch(rows, flat, branches, steps, obs, ram, seed, saves)
        numbers = numbers.reshape(len(numbers), count, branches)
        rewards, raw_rewards, lengths, lives = numbers[:4]
        if self.players == 2:
            rewards, raw_rewards = (
                np.stack([rewards, numbers[4]], -1),
                np.stack([raw_rewards, numbers[5]], -1),
            )
        terminated, truncated = flags.reshape(2, count, branches)
        return BranchResult(
            observations=None if obs is None else self._out(obs),
            rewards=self._out(rewards.astype(sum_dtype(self._reward_dtype))),
            raw_rewards=self._out(raw_rewards),
            terminated=self._out(terminated),
            truncated=self._out(truncated),
            lengths=self._out(lengths),
            lives=self._out(lives),
            states=after.reshape(count, branches, after.shape[1]) if saves else None,
            ram=ram,
        )

    def _put_state(self, row: NDArray[np.uint8], envs: list[int]) -> None:
        self._put_states(np.repeat(row, len(envs), axis=0), envs)

    def _put_states(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        self._native.set_state(states, envs)

    def _take_states(self, envs: list[int]) -> NDArray[np.uint8]:
        return self._native.get_state(envs)

    def _last_batch(self) -> list[int]:
        """Environments of the last batch received, which the next ``send`` acts for."""
        return self._native.ready_envs()

    def _set_last_batch(self, envs: list[int]) -> None:
        self._native.set_ready_envs(envs)

    def _envs_of_mask(self, mask: Arrays | None) -> list[int]:
        if mask is None:
            return list(range(self.num_envs))
        mask = np.asarray(arguments.on_host(mask))
        if mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise AtariError(
                f"mask is {mask.dtype} of shape {mask.shape}, expected bool of shape ({self.num_envs},)"
            )
        return np.nonzero(mask)[0].tolist()

    # ------------------------------------------------------------------ arrays

    def _check_open(self) -> None:
        if self.closed:
            raise AtariError("the environments are closed")

    def _out(self, array: Arrays) -> Any:
        return array if self._torch is None else self._torch(array)

    def _action_array(self, actions: Any) -> Arrays:
        array = np.asarray(arguments.on_host(actions))
        if self._continuous:
            if array.dtype != np.float32:
                raise TypeError(f"actions have dtype {array.dtype}, expected float32")
            return np.ascontiguousarray(array)
        if array.dtype.kind not in "iu":
            raise TypeError(f"actions have dtype {array.dtype}, expected integers")
        return np.ascontiguousarray(array, None if array.dtype in _ACTION_DTYPES else np.int64)
