"""A trained policy outside of its run: actions for observations, the network, and the environments."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from parl.envs import EnvMaker, FiniteCheck, Observer
from parl.errors import ConfigError
from parl.nets import silence_noise
from parl.nets.normalizer import Normalizer
from parl.types import Array, EnvSpec, Observations, RecurrentPolicy


@dataclass(frozen=True)
class PolicyConfig:
    """The settings with which a policy was trained.

    Attributes:
        run: settings of the run, such as ``run.total_steps``.
        algorithm: settings of the algorithm, such as ``algorithm.hidden``.
    """

    run: Any
    algorithm: Any


class Policy:
    """The policy of a checkpoint, made by :func:`parl.load`.

    Observations are those of :attr:`env_maker`, and actions those that it takes: an environment's own stack
    of frames is part of the observation, and other spaces than Box are converted there, see
    ``docs/environments.md``. Normalization and the scaling of actions are part of the policy.

    Attributes:
        algorithm: name of the algorithm.
        run: path of the run directory, or of the folder that was loaded.
        spec: spaces of the environment.
        config: settings of the run and of the algorithm.
        env_maker: ``env_maker(n)`` makes a vector environment as the run's evaluations use it; Atari games
            neither clip rewards nor end an episode with a life there.
        env_steps: transitions that the run had collected.
        folder: of the checkpoint.
        acting: the policy as the run's evaluations use it.
    """

    def __init__(
        self,
        acting: Any,  # a NetworkPolicy; those of registered algorithms may have no network
        algorithm: str,
        run: Path,
        folder: Path,
        spec: EnvSpec,
        config: PolicyConfig,
        env_maker: EnvMaker,
        env_steps: int,
    ) -> None:
        self.acting = acting
        self.algorithm, self.run, self.folder = algorithm, run, folder
        self.spec, self.config, self.env_maker, self.env_steps = spec, config, env_maker, env_steps
        self._observe, self._check = Observer(spec), FiniteCheck(spec)

    @functools.cached_property
    def network(self) -> nn.Module:
        """The network that chooses actions, with named parameters, in operations of torch alone.

        Its parameters share the memory of those that :meth:`predict` uses, so that changes in place have an
        effect there.

        Raises:
            ConfigError: the policies of a registered algorithm name no network.
        """
        if not hasattr(self.acting, "network"):
            raise ConfigError(f"policies of {self.algorithm} have no attribute network")
        return plain_copy(self.acting.network)

    def predict(
        self,
        observation: Any,
        *,
        deterministic: bool = True,
        state: Array | None = None,
        episode_start: Any = None,
    ) -> tuple[Any, Array | None]:
        """Returns the action for an observation, or those for a batch.

        Args:
            observation: one observation of :attr:`env_maker`, or N of them, which the shape decides; of
                dictionaries, each part is one or N.
            deterministic: the most probable action, or that of the largest value, as in evaluations. False:
                an action as in training after :attr:`env_steps` transitions, with exploration.
            state: recurrent policies only: what the previous call returned, None at the start.
            episode_start: recurrent policies only: bool, or (N,) bool, where an episode begins and the state
                is reset.

        Returns:
            The action in the shape of the action space, or (N, ...) actions, int64 if discrete, else float32;
            and the next state, (2, N, H) float32, None if the policy is not recurrent.

        Raises:
            ConfigError: a type or shape is not that of the observation space, or not that of a batch of it.
            NonFiniteError: an observation has a number that is NaN or infinite.
        """
        batch, single = self._batch_of(observation)
        count = len(next(iter(batch.values()))) if isinstance(batch, Mapping) else len(batch)
        if not count:
            return np.zeros((0, *self.spec.action_shape), self.spec.action_dtype), state
        self._check.given(batch)
        recurrent = isinstance(self.acting, RecurrentPolicy)
        if recurrent:
            self._set_memory(count, state, episode_start)
        if deterministic:
            found = self.acting.act_greedily(batch)
        else:
            found = self.acting.act(batch, self.env_steps)
        actions = np.asarray(found, self.spec.action_dtype)
        following = self.acting.memory.numpy().copy() if recurrent else None
        return (actions[0] if single else actions), following

    def _batch_of(self, observation: Any) -> tuple[Observations, bool]:
        """``observation`` as a batch, and whether it was a single one."""
        try:
            seen = self._observe(observation)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            parts = {name: shape for name, shape, _ in self.spec.observation_parts}
            expected = f"a dictionary of {parts}" if parts else f"{self.spec.observation_shape}"
            raise ConfigError(
                f"observation = {repr(observation)[:80]} is not {expected} or a batch of it, as env_maker(n) "
                "of the policy gives it: there, Discrete and other spaces are converted "
                f"({type(error).__name__}: {error})"
            ) from error
        if not isinstance(seen, Mapping):
            single = _is_single("observation", seen.shape, self.spec.observation_shape)
            return (seen[None] if single else seen), single
        singles = [
            _is_single(name, seen[name].shape, shape) for name, shape, _ in self.spec.observation_parts
        ]
        if any(singles) != all(singles) or len({len(part) for part in seen.values() if not singles[0]}) > 1:
            shapes = {name: part.shape for name, part in seen.items()}
            raise ConfigError(f"parts of the observation are batches of different sizes: {shapes}")
        return ({name: part[None] for name, part in seen.items()} if singles[0] else seen), singles[0]

    def _set_memory(self, count: int, state: Array | None, episode_start: Any) -> None:
        starts = np.zeros(count, bool)
        if state is None:
            starts[:] = True
        else:
            shape = (2, count, self.acting.memory.shape[2])
            if np.shape(state) != shape:
                raise ConfigError(f"state has shape {np.shape(state)}, expected {shape}")
            self.acting.memory = torch.tensor(state, dtype=torch.float32)
        if episode_start is not None:
            if np.shape(episode_start) not in ((), (count,)):
                raise ConfigError(
                    f"episode_start has shape {np.shape(episode_start)}, expected () or ({count},)"
                )
            starts |= np.asarray(episode_start, bool)
        self.acting.restart(starts)

    def export(self, path: str | Path) -> None:
        """Writes the policy to a file that runs without parl.

        Its input is ``observation``, (N, *shape) in the dtype of :attr:`spec`, for any N, or one input for
        each part of a dictionary; its output is ``action``, the deterministic actions (N, ...). Normalization
        and scaling of actions are part of it. Recurrent policies also have the input ``state`` and the output
        ``next_state``, (2, N, H) float32; the state is 0 where an episode begins.

        Args:
            path: ``.onnx``, for programs such as onnxruntime; or ``.pt2``, for ``torch.export.load``.

        Raises:
            ConfigError: the ending is another one, or a package is missing.
        """
        from parl.train.export import export

        export(self, path)

    def save_for_hub(self, folder: str | Path) -> Path:
        """Writes the policy into a folder that :func:`parl.load` reads and the Hugging Face Hub shows.

        The folder has the weights, the settings without local paths, the score, a model card (``README.md``),
        the learning curve if matplotlib is installed, and the newest ``videos/*.mp4`` of the run. It has no
        pickle: an environment that is a function is left out, and ``parl.load(folder, env=...)`` replaces it.

        Args:
            folder: created if missing; files of the same names are replaced.

        Returns:
            ``folder``.

        Raises:
            ConfigError: a function without an import path makes the network: its pickle would be needed.
        """
        from parl.train import hub

        return hub.save(self, folder)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        token: str | None = None,
        commit_message: str = "Upload a policy of parl",
    ) -> str:
        """Uploads the folder of :meth:`save_for_hub`; ``parl.load("hf://user/repository")`` loads it.

        Args:
            repo_id: ``user/repository``, which is created if missing.
            private: whether a new repository is private.
            token: access token of the Hub; None: that of ``hf auth login``.
            commit_message: first line of the commit.

        Returns:
            The address of the commit.

        Raises:
            ConfigError: as for :meth:`save_for_hub`, or huggingface_hub is not installed.
        """
        from parl.train import hub

        return hub.push(self, repo_id, private, token, commit_message)

    def __repr__(self) -> str:
        return (
            f"<Policy of {self.algorithm} for {self.env_maker.name} after {self.env_steps:,} steps: "
            f"{self.spec.spaces}, {len(self.acting.weights):,} weights, from {self.folder}>"
        )


def plain_copy(network: nn.Module) -> nn.Module:
    """A copy that shares the parameters' memory, without the fused operations of :mod:`parl.nets.fused`."""
    copied = copy.deepcopy(network)
    for mine, theirs in zip(copied.parameters(), network.parameters(), strict=True):
        mine.data = theirs.data
    silence_noise(copied)
    for part in copied.modules():
        if not isinstance(part, Normalizer):
            for parameter in part.parameters(recurse=False):
                parameter.requires_grad_(True)
    return copied


def _is_single(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether ``shape`` is that of one observation; False for a batch."""
    if shape == expected:
        return True
    if shape[1:] != expected or not shape:
        raise ConfigError(
            f"{name} has shape {shape}, expected {expected} or a batch (N, {expected}), as env_maker(n) of "
            "the policy gives it: there, Discrete and other spaces are converted"
        )
    return False
