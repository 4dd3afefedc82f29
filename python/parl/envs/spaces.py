"""Conversion of Gymnasium's spaces to those that parl's networks, replays and rollouts take.

Observations become Box, or Dict of Box: Discrete and MultiDiscrete by one-hot encoding, MultiBinary as it is,
a Tuple of vectors by concatenation, a Tuple with images as a Dict with the keys "0", "1", and so on. Actions
become Discrete from 0 on, MultiDiscrete from 0 on, or Box of float32. A Box of the shape () gets the
shape (1,). Spaces that have this form are left as they are.

Action masks (``info["action_mask"]``) become a part of the observation, so that they are stored with the
transitions.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from parl.errors import ConfigError
from parl.types import MASK, Array, is_image

_OBSERVATION = "observation"  # name of an observation that gets an action mask beside it
_ADVICE = (
    "wrap the environment, say in gymnasium.wrappers.TransformObservation, so that it returns arrays of one "
    "shape"
)


def adapt(env: VectorEnv[Any, Any, Any], masks: bool) -> VectorEnv[Any, Any, Any]:
    """Wraps ``env`` in :class:`AdaptedSpaces` if it has spaces to convert or ``masks`` is set.

    Raises:
        ConfigError: a space cannot be converted; names it.
    """
    observation, action = env.single_observation_space, env.single_action_space
    converted = observation_space(observation), action_space(action)
    if not masks and converted[0] is observation and converted[1] is action:
        return env
    return AdaptedSpaces(env, *converted, masks)


def has_masks(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether ``env`` reports action masks; resets it to find out, if its actions are choices."""
    if isinstance(env.single_action_space, Box):
        return False
    return MASK in env.reset()[1]  # without a seed: seeds below 2**24 are those of evaluations


def observation_space(space: Space[Any], name: str = "") -> Space[Any]:
    """The space, Box or Dict of Box, of the converted observations of ``space``.

    Raises:
        ConfigError: ``space`` or a part of it cannot be converted.
    """
    if isinstance(space, Box):
        return space if space.shape else _as_vector(space, space.dtype)
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        size = math.prod(space.shape) if isinstance(space, MultiBinary) else _sizes(space).sum()
        return Box(0.0, 1.0, (int(size),), np.float32)
    if isinstance(space, Dict):
        parts = [(key, observation_space(part, f"{name}{key}.")) for key, part in space.spaces.items()]
        return space if all(part is space[key] for key, part in parts) else Dict(OrderedDict(parts))
    if isinstance(space, Tuple) and space.spaces:
        parts = [observation_space(part, f"{name}{i}.") for i, part in enumerate(space.spaces)]
        if all(isinstance(part, Box) and not is_image(part.shape, str(part.dtype)) for part in parts):
            return Box(-np.inf, np.inf, (sum(math.prod(part.shape or ()) for part in parts),), np.float32)
        return Dict(OrderedDict((str(i), part) for i, part in enumerate(parts)))
    what = f"observation part {name[:-1]} is" if name else "observation space is"
    raise ConfigError(f"{what} {space}, which no algorithm takes: {_ADVICE}")


def _as_vector(space: Box, dtype: Any) -> Box:
    """``space`` with another dtype, and with one dimension if it has none."""
    shape = space.shape or (1,)
    low, high = (np.reshape(bound, shape).astype(dtype) for bound in (space.low, space.high))
    return Box(low, high, shape, dtype)


def _sizes(space: Discrete | MultiDiscrete) -> Array:
    """Numbers of values of the elements, flattened."""
    return np.ravel(space.n if isinstance(space, Discrete) else space.nvec)


def _one_hot(space: Discrete | MultiDiscrete, rows: Array) -> Array:
    """Converts integers (N, elements) to (N, values of all elements) float32.

    Raises:
        ConfigError: one is not in ``space``.
    """
    sizes = _sizes(space)
    numbers = rows - np.ravel(space.start)
    outside = ((numbers < 0) | (numbers >= sizes)).any(axis=1)
    if outside.any():
        raise ConfigError(f"observation {rows[outside][0].tolist()} is not in the environment's {space}")
    encoded = np.zeros((len(rows), int(sizes.sum())), np.float32)
    encoded[np.arange(len(rows))[:, None], numbers + np.cumsum(sizes) - sizes] = 1.0
    return encoded


def convert_observations(space: Any, observations: Any) -> Any:
    """Converts a batch of observations of ``space``, see :func:`observation_space`."""
    if isinstance(space, Dict):
        return {key: convert_observations(part, observations[key]) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        parts = [convert_observations(*pair) for pair in zip(space.spaces, observations, strict=True)]
        if isinstance(observation_space(space), Dict):
            return {str(i): part for i, part in enumerate(parts)}
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1, dtype=np.float32)
    if isinstance(space, Box):
        return observations if space.shape else np.reshape(observations, (-1, 1))
    rows = np.asarray(observations).reshape(len(observations), -1)
    return rows.astype(np.float32) if isinstance(space, MultiBinary) else _one_hot(space, rows)


def action_space(space: Space[Any]) -> Space[Any]:
    """The space that actions of algorithms have: Box, Discrete from 0 on, or MultiDiscrete from 0 on.

    Raises:
        ConfigError: ``space`` cannot be converted.
    """
    if isinstance(space, Box):
        return space if space.shape and space.dtype == np.float32 else _as_vector(space, np.float32)
    if isinstance(space, Discrete):
        return space if space.start == 0 else Discrete(int(space.n))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1 and not np.any(space.start):
        return space
    return MultiDiscrete(_branches(space, space))


def _branches(space: Space[Any], whole: Space[Any]) -> list[int]:
    """Numbers of values of each choice in ``space``, which is a part of ``whole``."""
    if isinstance(space, Discrete):
        return [int(space.n)]
    if isinstance(space, MultiDiscrete):
        return space.nvec.ravel().tolist()
    if isinstance(space, MultiBinary):
        return [2] * math.prod(space.shape)
    if isinstance(space, Tuple | Dict) and space.spaces:
        parts = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return [size for part in parts for size in _branches(part, whole)]
    expected = "expected Box, or Discrete, MultiDiscrete and MultiBinary, also in Tuple and Dict"
    part = "is" if space is whole else f"{whole} has the part"
    raise ConfigError(
        f"action space {part} {space}, {expected}: wrap the environment in gymnasium.wrappers.TransformAction"
    )


def convert_actions(space: Any, actions: Array) -> Any:
    """Converts a batch of actions to ``space``: choices (N,) or (N, branches), or (N, ...) float32 for a Box.

    Elements of a Box of integers are rounded. Float32 bounds can lie outside of those of a Box of another
    dtype, therefore actions are clipped.
    """
    if isinstance(space, Box):
        shaped = actions.reshape(len(actions), *space.shape)
        whole = np.rint(shaped) if np.issubdtype(space.dtype, np.integer) else shaped
        return np.clip(whole, space.low, space.high).astype(space.dtype)
    if isinstance(space, Discrete):
        return actions.reshape(-1) + space.start
    if isinstance(space, MultiDiscrete | MultiBinary):
        shaped = actions.reshape(len(actions), *space.shape) + getattr(space, "start", 0)
        return shaped.astype(space.dtype)
    found: dict[Any, Any] = {}
    for key, part in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
        size = len(_branches(part, space))
        found[key], actions = convert_actions(part, actions[:, :size]), actions[:, size:]
    return found if isinstance(space, Dict) else tuple(found.values())


def discrete_actions(actions: Any, num_envs: int, num_actions: int) -> Array:
    """``actions`` as an array, checked to be (N,) integers from 0 to ``num_actions`` - 1.

    Args:
        actions: those of a step.
        num_envs: number of environments N.
        num_actions: number of actions of each.

    Raises:
        ValueError: they are of another shape, dtype or range; names it.
    """
    array = np.asarray(actions)
    if array.shape != (num_envs,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"actions are {array.dtype} of shape {array.shape}, expected integers of ({num_envs},)"
        )
    if array.astype(np.uint64, copy=False).max() >= num_actions:
        raise ValueError(f"actions are from {array.min()} to {array.max()}, expected 0 to {num_actions - 1}")
    return array


class AdaptedSpaces(VectorWrapper):
    """A vector environment with converted spaces, see the module.

    Args:
        env: the environment.
        observation: its converted observation space.
        action: its converted action space.
        masks: whether action masks become the observation part ``"action_mask"``; the observation itself is
            then the part ``"observation"``, unless it is a dictionary.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], observation: Space[Any], action: Space[Any], masks: bool
    ) -> None:
        super().__init__(env)
        self._converts_actions = action is not env.single_action_space
        self._converts_observations = observation is not env.single_observation_space
        self._branches: tuple[int, ...] = ()
        if masks:
            self._branches = tuple(_branches(action, action))
            parts = observation.spaces if isinstance(observation, Dict) else {_OBSERVATION: observation}
            if MASK in parts:
                raise ConfigError(
                    f"both info and the observation have an {MASK!r}: rename that of the observation"
                )
            mask = Box(0, 1, (sum(self._branches),), np.uint8)
            observation = Dict(OrderedDict([*parts.items(), (MASK, mask)]))
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, env.num_envs)
        self.action_space = batch_space(action, env.num_envs)

    @property
    def mask_size(self) -> int:
        """M, see :class:`parl.types.EnvSpec`."""
        return sum(self._branches)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See :class:`gymnasium.vector.VectorEnv`."""
        observations, info = self.env.reset(seed=seed, options=options)
        return self._convert(observations, info, self.num_envs), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """See :class:`gymnasium.vector.VectorEnv`."""
        if self._converts_actions:
            actions = convert_actions(self.env.single_action_space, np.asarray(actions))
        observations, reward, terminated, truncated, info = self.env.step(actions)
        found = self._convert(observations, info, self.num_envs)
        if "final_obs" in info:
            info = {**info, "final_obs": self._final(info)}
        return found, reward, terminated, truncated, info

    def _convert(self, observations: Any, info: Mapping[str, Any], count: int) -> Any:
        """Converts a batch of observations; adds the mask that ``info`` has."""
        if self._converts_observations:
            observations = convert_observations(self.env.single_observation_space, observations)
        if not self._branches:
            return observations
        parts = observations if isinstance(observations, Mapping) else {_OBSERVATION: observations}
        return {**parts, MASK: masks_in(info, count, self._branches)}

    def _final(self, info: Mapping[str, Any]) -> Array:
        """Converts the last observations of episodes that ended in a step that also resets."""
        space, final = self.env.single_observation_space, info["final_obs"]
        masks = (
            masks_in(info.get("final_info", {}), self.num_envs, self._branches) if self._branches else None
        )
        found = np.full(len(final), None, object)
        for index in np.nonzero(info["_final_obs"])[0]:
            batch = concatenate(space, [final[index]], create_empty_array(space, 1))
            row = {} if masks is None else {MASK: masks[[index]], f"_{MASK}": np.ones(1, bool)}
            found[index] = _first(self._convert(batch, row, 1))
        return found


def _first(observations: Any) -> Any:
    if isinstance(observations, Mapping):
        return {key: _first(part) for key, part in observations.items()}
    return observations[0]


def masks_in(info: Mapping[str, Any], count: int, branches: Sequence[int]) -> Array:
    """The action masks of a step: (N, M) uint8, 1 for valid actions.

    Where an environment gives no mask, or no action of a branch is valid, as at the end of an episode, all
    are valid.

    Args:
        info: infos of the step, with ``action_mask`` (N, M) and ``_action_mask`` (N,), or without.
        count: N.
        branches: numbers of values of each choice; M is their sum.

    Raises:
        ConfigError: a mask has another size, or other values than 0 and 1.
    """
    masks = np.ones((count, sum(branches)), np.uint8)
    if MASK in info:
        given = np.nonzero(info.get(f"_{MASK}", np.ones(count, bool)))[0]
        rows = np.asarray(info[MASK])[given]
        if rows.dtype == object:  # lists, or an array for each choice
            rows = np.array([np.hstack(row) for row in rows])
        if rows.size != masks[given].size:
            raise ConfigError(
                f"info[{MASK!r}] has shape {rows.shape[1:]}, expected ({sum(branches)},): an entry for each "
                f"value of the choices {list(branches)}"
            )
        if not ((rows == 0) | (rows == 1)).all():
            raise ConfigError(
                f"info[{MASK!r}] is {rows[0].tolist()}, expected 1 for valid actions and 0 for others"
            )
        masks[given] = rows.reshape(len(rows), -1)
    start = 0
    for size in branches:
        part = masks[:, start : start + size]
        part[~part.any(axis=1)] = 1
        start += size
    return masks
