"""Atari environments on a CUDA device: what :class:`parl.AtariVectorEnv` is with ``device="cuda"``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from parl import _native
from parl.cuda import nvrtc_folders
from parl.envs import arguments
from parl.envs.atari import AtariVectorEnv
from parl.errors import AtariError, CudaUnavailableError

if TYPE_CHECKING:
    from torch import Tensor

# Rows of the numbers and flags that the kernels write: parl._native.CudaAtariBatch.
_NUMBERS, _FLAGS = 11, 3
_REWARD, _RAW, _LIVES, _FRAME, _EPISODE_FRAME, _ENV_ID, _FINAL, _RETURN, _LENGTH = 0, 1, 2, 3, 4, 5, 6, 9, 10


class CudaAtariVectorEnv(AtariVectorEnv):
    """:class:`parl.AtariVectorEnv` on a CUDA device. Not made directly: ``AtariVectorEnv(device="cuda")``.

    Observations, rewards, flags and figures are CUDA tensors that torch has allocated; all work goes to
    torch's current stream. ``reset`` and ``step`` do not wait for it, so that ``step`` can be captured in a
    CUDA graph. Numbers are those of ``device="cpu"``, byte for byte, and states go from one to the other.

    - ``boot`` is ``"snapshot"`` unless it is named.
    - An action outside the action space does nothing; :meth:`check`, :meth:`get_state` and :meth:`set_state`
      raise it, and so does an environment that was stepped before its reset.
    - ``info["episode_return"]`` and ``"episode_length"`` are always there; their masks say where they count.
    - Not here: ``batch_size`` below ``num_envs``, ``continuous``, ``render_mode``.
    """

    _core: Any

    def _make_core(self, config: dict[str, Any]) -> Any:
        for name, off in (("continuous", False), ("render_mode", None)):
            if self._arguments[name] != off:
                raise AtariError(f'{name} is {self._arguments[name]!r}: device="cuda" has it not')
        if config["batch_size"] != self.num_envs:
            raise AtariError(f'batch_size is {config["batch_size"]}: device="cuda" steps all {self.num_envs}')
        ordinal = arguments.cuda_ordinal(self._arguments["device"])
        core = _native.CudaAtariBatch(config, ordinal, nvrtc_folders())
        self._on(_torch_device(ordinal))
        return core

    def _on(self, device: Any) -> None:
        """Makes tensors on this device."""
        import torch

        self._tensors, self._place = torch, device
        self._everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=device)

    def _stream(self) -> int:
        """Address of torch's current stream."""
        return self._tensors.cuda.current_stream(self._place).cuda_stream

    # ------------------------------------------------------------------ running

    def reset(
        self,
        *,
        seed: int | NDArray[Any] | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        out: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """As :meth:`parl.AtariVectorEnv.reset`, with tensors; does not wait for the device."""
        self._check_open()
        mask = arguments.reset_mask(options, self.num_envs)
        seeds = arguments.seeds(seed, mask, self.num_envs)
        if isinstance(seed, int) and seed >= 0:
            VectorEnv.reset(self, seed=seed)
        torch, place = self._tensors, self._place
        given = None if seeds is None else torch.tensor(seeds, dtype=torch.int64).to(place, non_blocking=True)
        chosen = (
            None if mask is None else torch.from_numpy(mask.astype(np.uint8)).to(place, non_blocking=True)
        )
        results = self._results_to(out, with_final=False)
        self._core.reset(_address(given), _address(chosen), results.addresses(), self._stream())
        return results.obs, self._figures(results)

    def step(self, actions: Any, *, out: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As :meth:`parl.AtariVectorEnv.step`; does not wait for the device.

        Args:
            actions: (N,) int64 or int32 on the device; what lies elsewhere is copied there first.
            out: uint8 tensor on the device to write observations to.

        Raises:
            TypeError: actions of another type.
            ValueError: of another shape; the environments are closed.
        """
        self._check_open()
        torch = self._tensors
        chosen = torch.as_tensor(actions, device=self._place)
        if chosen.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"actions have dtype {chosen.dtype}, expected int64 or int32")
        if tuple(chosen.shape) != (self.num_envs,):
            raise AtariError(f"actions have shape {tuple(chosen.shape)}, expected ({self.num_envs},)")
        chosen = chosen.contiguous()
        results = self._results_to(out, with_final=self._autoreset is AutoresetMode.SAME_STEP)
        wide = chosen.dtype == torch.int64
        self._core.step(chosen.data_ptr(), wide, results.addresses(), self._stream())
        rewards = results.numbers[_REWARD]
        if self._reward_dtype != np.int32:
            rewards = rewards.to(getattr(torch, self._reward_dtype.name))
        infos = self._figures(results)
        if self._clips:
            infos["raw_reward"], infos["_raw_reward"] = results.numbers[_RAW], infos["_env_id"]
        self._add_episodes(infos, results)
        return results.obs, rewards, results.flags[0], results.flags[1], infos

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Not on a device: a step does not wait anyway."""
        raise AtariError('send and recv are of device="cpu": on a CUDA device step does not wait')

    def recv(self, *, out: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As :meth:`send`."""
        raise AtariError('send and recv are of device="cpu": on a CUDA device step does not wait')

    def check(self) -> None:
        """Waits for the device, and raises what went wrong on it since the last look."""
        self._check_open()
        self._core.check(self._stream())

    @property
    def device_bytes(self) -> int:
        """Memory on the device that the environments hold, observations apart."""
        return self._core.device_bytes

    @property
    def num_threads(self) -> int:
        """0: no thread of the processor steps environments."""
        return 0

    # ------------------------------------------------------------------ states

    def get_state(self, mask: Any = None) -> NDArray[np.uint8]:
        """As :meth:`parl.AtariVectorEnv.get_state`: rows of either device fit the other. Waits."""
        self._check_open()
        return self._core.get_state(self._chosen(mask), self._stream())

    def _put_states(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        self._core.set_state(states, envs, self._stream())

    def _take_states(self, envs: list[int]) -> NDArray[np.uint8]:
        return self._core.get_state(envs, self._stream())

    def _turn(self) -> list[int]:
        return []

    def _set_turn(self, turn: list[int]) -> None:
        del turn

    # ------------------------------------------------------------------ tensors

    def _results_to(self, out: Any, *, with_final: bool) -> _Results:
        torch, place, shape = self._tensors, self._place, self._out_shape
        if out is not None:
            found = (
                getattr(out, "dtype", None),
                tuple(getattr(out, "shape", ())),
                getattr(out, "device", None),
            )
            if found != (torch.uint8, shape, place) or not out.is_contiguous():
                raise AtariError(
                    f"out is {found[0]} of shape {found[1]} on {found[2]}, expected a contiguous uint8 "
                    f"tensor of shape {shape} on {place}"
                )
        return _Results(
            obs=torch.empty(shape, dtype=torch.uint8, device=place) if out is None else out,
            final=torch.zeros(shape, dtype=torch.uint8, device=place) if with_final else None,
            ram=torch.empty((self.num_envs, 128), dtype=torch.uint8, device=place)
            if self._ram_info
            else None,
            numbers=torch.empty((_NUMBERS, self.num_envs), dtype=torch.int32, device=place),
            flags=torch.empty((_FLAGS, self.num_envs), dtype=torch.bool, device=place),
        )

    def _figures(self, results: _Results) -> dict[str, Any]:
        numbers, here = results.numbers, self._everywhere
        infos: dict[str, Any] = {
            "env_id": numbers[_ENV_ID],
            "lives": numbers[_LIVES],
            "frame_number": numbers[_FRAME],
            "episode_frame_number": numbers[_EPISODE_FRAME],
            "_env_id": here,
            "_lives": here,
            "_frame_number": here,
            "_episode_frame_number": here,
        }
        if results.ram is not None:
            infos["ram"], infos["_ram"] = results.ram, here
        return infos

    def _add_episodes(self, infos: dict[str, Any], results: _Results) -> None:
        numbers, ended = results.numbers, results.flags[2]
        infos["episode_return"], infos["_episode_return"] = numbers[_RETURN], ended
        infos["episode_length"], infos["_episode_length"] = numbers[_LENGTH], ended
        if results.final is not None:
            final: dict[str, Any] = {}
            for i, name in enumerate(("lives", "frame_number", "episode_frame_number")):
                final[name], final[f"_{name}"] = numbers[_FINAL + i], ended
            infos["final_obs"], infos["_final_obs"] = results.final, ended
            infos["final_info"], infos["_final_info"] = final, ended


class _Results:
    """Tensors that one call writes."""

    def __init__(
        self, *, obs: Tensor, final: Tensor | None, ram: Tensor | None, numbers: Tensor, flags: Tensor
    ) -> None:
        self.obs, self.final, self.ram, self.numbers, self.flags = obs, final, ram, numbers, flags

    def addresses(self) -> tuple[int, int, int, int, int]:
        """Where they lie, in the core's order."""
        return (
            self.obs.data_ptr(),
            _address(self.final),
            _address(self.ram),
            self.numbers.data_ptr(),
            self.flags.data_ptr(),
        )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _torch_device(ordinal: int) -> Any:
    try:
        import torch
    except ImportError as error:
        raise CudaUnavailableError('device="cuda" needs torch: pip install "parl-rl[train]"') from error
    if not torch.cuda.is_available():
        raise CudaUnavailableError(
            f"torch {torch.__version__} sees no CUDA device, though the driver has: was it built for CUDA?"
        )
    return torch.device("cuda", ordinal)
