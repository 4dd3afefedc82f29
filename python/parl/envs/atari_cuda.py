"""Atari environments on a CUDA device: what :class:`parl.AtariVectorEnv` is with ``device="cuda"``."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from parl import cuda
from parl.envs import arguments
from parl.envs.atari import AtariVectorEnv
from parl.envs.cuda_groups import Group, Groups, form_of
from parl.envs.cuda_sliding import Sliding
from parl.errors import AtariError

if TYPE_CHECKING:
    from torch import Tensor

# Rows of the numbers and flags that the kernels write: parl._native.CudaAtariBatch.
_NUMBERS, _FLAGS = 12, 4
_REWARD, _RAW, _ENV_ID = 0, 1, 5


class CudaAtariVectorEnv(AtariVectorEnv):
    """:class:`parl.AtariVectorEnv` on a CUDA device. Not made directly: ``AtariVectorEnv(device="cuda")``.

    Observations, rewards, flags and figures are CUDA tensors that torch has allocated; all work goes to
    torch's current stream. ``reset``, ``step``, ``send`` and ``recv`` do not wait for it, so that ``step``
    can be captured in a CUDA graph. Numbers are those of ``device="cpu"``, byte for byte, and states go
    from one to the other.

    - ``boot`` is ``"snapshot"`` unless it is named.
    - An action outside the action space, or one that is not finite, does nothing; :meth:`check`,
      :meth:`get_state`, :meth:`set_state`, :meth:`seed_states` and :meth:`render` raise it, and so does an
      environment that was stepped before its reset.
    - ``info["episode_return"]`` and ``"episode_length"`` are always there; their masks say where they count.
    - With ``batch_size`` below ``num_envs``, which it must divide, environments are stepped in groups: 0 to
      ``batch_size``, and so on, each on a stream of its own, so that a network can look at one group while
      others run. ``send`` starts the step of a group; ``recv`` gives the results of the group that was sent
      first, and lets torch's current stream wait for them, not the host.
    - With ``sliding`` observations are views of one buffer per group, in which only the newest plane is
      written; they last until the next ``reset``, ``step`` or ``send``. Such environments cannot be captured
      in a graph, whose tensors stay where they are.
    - ``render`` waits; pictures are made on the host from the states, and are NumPy arrays as on the CPU.
    - Results are tensors whatever ``output`` says: ``tensor.numpy(force=True)`` or DLPack give others.
    """

    _core: Groups

    def _make_core(self, config: dict[str, Any]) -> Any:
        import torch

        core = Groups(config, cuda.ordinal(self._arguments["device"]))
        self._tensors, self._place = torch, core.device
        self._slides: dict[int, Sliding] = {}
        self._everywhere = torch.ones(self.batch_size, dtype=torch.bool, device=core.device)
        return core

    # ------------------------------------------------------------------ running

    def reset(
        self,
        *,
        seed: int | NDArray[Any] | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        out: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """As :meth:`parl.AtariVectorEnv.reset`, with tensors; does not wait for the device.

        ``options["reset_mask"]`` may be a bool tensor on the device, such as ``terminated | truncated``;
        then a seed is a whole number or None.
        """
        self._check_open()
        torch, place = self._tensors, self._place
        mask = None if options is None else options.get("reset_mask")
        if mask is not None and self.is_async:
            raise AtariError("reset_mask needs batch_size == num_envs: others may be running")
        if isinstance(mask, torch.Tensor):
            given, chosen = self._seeds_where(seed, mask)
        else:
            on_host = arguments.reset_mask(options, self.num_envs)
            seeds = arguments.seeds(seed, on_host, self.num_envs, self._seed_limit)
            given = None if seeds is None else self._sent_there(torch.tensor(seeds, dtype=torch.int64))
            chosen = None if on_host is None else self._sent_there(torch.from_numpy(on_host.astype(np.uint8)))
        if isinstance(seed, int) and seed >= 0:
            VectorEnv.reset(self, seed=seed)
        # What is still on its way is thrown away, in order.
        while self._core.sent:
            self._core.sent.popleft()[0].join()
        self._sent = None
        for group in self._core.all:
            results = self._results_to(out if group.first == 0 else None, group, with_final=False, whole=True)
            seeds = None if given is None else given[group.first : group.first + group.size]
            group.begin(seeds, chosen, *results.tensors())
            group.core.reset(_address(seeds), _address(chosen), results.addresses(), group.stream(place))
            group.end()
            self._core.sent.append((group, results))
        self._core.turn, results = self._first()
        if self.render_mode == "human":
            self._show()
        return results.obs, self._figures(results)

    def _seeds_where(self, seed: Any, mask: Any) -> tuple[Tensor | None, Tensor]:
        """Seeds and mask of a mask on the device: the environments of the mask are counted there."""
        torch = self._tensors
        if mask.dtype != torch.bool or tuple(mask.shape) != (self.num_envs,):
            raise AtariError(
                f"reset_mask is {mask.dtype} of shape {tuple(mask.shape)}, "
                f"expected bool of shape ({self.num_envs},)"
            )
        mask = mask.to(self._place, non_blocking=True)
        chosen = mask.to(torch.uint8)
        if seed is None:
            return None, chosen
        start = arguments.whole("seed", seed, 0, self._seed_limit - self.num_envs)
        counted = start - 1 + torch.cumsum(mask, 0)
        return torch.where(mask, counted, -1), chosen

    def _sent_there(self, tensor: Tensor) -> Tensor:
        """A copy on the device that nobody waits for: pageable memory would be waited for."""
        if self._place.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self._place, non_blocking=True)

    def step(self, actions: Any, *, out: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As :meth:`parl.AtariVectorEnv.step`; does not wait for the device.

        Args:
            actions: (batch_size,) int64 or int32, or with ``continuous`` (batch_size, 3) float32, on the
                device; what lies elsewhere, also in another library's array that knows DLPack, is copied
                there first.
            out: uint8 tensor on the device to write observations to.

        Raises:
            TypeError: actions of another type.
            ValueError: of another shape; the environments are closed.
            CudaUnavailableError: torch has no memory for the results; they go on when there is some.
        """
        self._check_open()
        if self.is_async:
            self.send(actions)
            return self.recv(out=out)
        if self._sent is not None:
            raise AtariError("step comes between send and recv: call recv first")
        return self._stepped(self._actions(actions, self.num_envs), out)

    def _stepped(self, actions: Any, out: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._launch(self._core.all[0], actions, out)
        return self._received(out)

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Starts one step of the group of the last batch, or of ``env_id``; does not wait.

        With ``batch_size == num_envs`` the actions are for all environments, ``env_id`` may give their
        order, and the step starts in :meth:`recv`.

        Raises:
            ValueError: nothing has been received that these actions could be for, a group is still at work,
                ``env_id`` is no group; and as :meth:`step`.
        """
        self._check_open()
        if not self.is_async and self._sent is not None:
            raise AtariError("environment 0 is still at work: call recv before the next send")
        envs = None if env_id is None else [operator.index(i) for i in env_id]
        group = self._core.turn if self.is_async else self._core.all[0]
        if envs is not None:
            group = self._core.of(envs)
        if group is None:
            raise AtariError("send has nobody to act for: call reset or recv first")
        if any(group is other for other, _ in self._core.sent):
            raise AtariError(f"environment {group.first} is still at work: call recv before the next send")
        chosen = self._actions(actions, group.size)
        if envs is not None:
            order = self._sent_there(self._tensors.from_numpy(np.argsort(envs)))
            chosen = chosen[order]
        if not self.is_async:
            self._sent = chosen.clone()
            return
        self._launch(group, chosen, None)
        if group is self._core.turn:
            self._core.turn = None

    def recv(self, *, out: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """The results of the group that was sent first, as of :meth:`step`; the host does not wait.

        Raises:
            ValueError: nothing has been sent.
        """
        self._check_open()
        if self.is_async:
            return self._received(out)
        if self._sent is None:
            raise AtariError("recv would wait for ever: nothing is on its way; call send first")
        actions, self._sent = self._sent, None
        return self._stepped(actions, out)

    def _launch(self, group: Group, actions: Any, out: Any) -> None:
        results = self._results_to(out, group, with_final=self._autoreset is AutoresetMode.SAME_STEP)
        group.begin(actions, *results.tensors())
        wide = actions.dtype == self._tensors.int64
        group.core.step(actions.data_ptr(), wide, results.addresses(), group.stream(self._place))
        group.end()
        # Kept until it is received: the stream reads the actions later.
        results.actions = actions
        self._core.sent.append((group, results))

    def _first(self) -> tuple[Group, _Results]:
        group, results = self._core.sent.popleft()
        group.join()
        if group.first:
            results.numbers[_ENV_ID] += group.first
        return group, results

    def _received(self, out: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self._core.sent:
            raise AtariError("recv would wait for ever: nothing is on its way; call send first")
        if out is not None:
            self._check_out(out)
        self._core.turn, results = self._first()
        torch = self._tensors
        obs = results.obs
        if out is not None and results.out is not out:
            # Sent before anybody said where to.
            obs = self._view(out)
            obs.copy_(results.obs, non_blocking=True)
        rewards = results.numbers[_REWARD]
        if self._reward_dtype != np.int32:
            rewards = rewards.to(getattr(torch, self._reward_dtype.name))
        infos = self._figures(results)
        if results.actions is not None:
            if self._clips:
                infos["raw_reward"], infos["_raw_reward"] = results.numbers[_RAW], infos["_env_id"]
            self._add_ends(infos, results.numbers, results.flags, results.final)
            self._add_game(infos, results.numbers, results.flags, any_ended=True)
        if self.render_mode == "human":
            self._show()
        return obs if out is None else out, rewards, results.flags[0], results.flags[1], infos

    def calibrate(self) -> list[tuple[str, int, float]]:
        """Measures how the game is played fastest on this device, and keeps that on the disk.

        Environments of one game, 1,024 of them or more, do so when they are made, unless it is known,
        ``PARL_CUDA_FORM`` says how, or ``PARL_CUDA_CALIBRATE`` is ``0``. Numbers do not depend on it. All
        must be reset afterwards.

        Returns:
            What was tried: the form (``"grouped"``, ``"predicated"``, ``"plain"``), the rows of its window as
            a power of two, and seconds per step of a group.

        Raises:
            AtariError: the environments play several games.
        """
        self._check_open()
        self._core.idle()
        self._forget_slides()
        return self._core.calibrate()

    @property
    def calibrated(self) -> bool:
        """How the games are played was known from a measurement when these environments were made."""
        return self._core.calibrated

    def choose(self, *forms: str) -> None:
        """Plays the games in these forms from now on, whatever was measured. Numbers do not depend on it.

        ``PARL_CUDA_FORM`` does so for all environments of a process when they are made.

        Args:
            *forms: one for all games, or one per game: ``"grouped:4"`` (lanes at the same place run together;
                the window is a power of two of picture rows: 0, 1, 2, 3, 4, 6, or 9 for the whole picture),
                ``"predicated"`` (all lanes by the same micro-steps) or ``"plain"`` (each lane for itself).

        Raises:
            ValueError: there is no such form or window, or another number of games; a step has been sent and
                not received.
        """
        self._check_open()
        self._core.idle()
        self._core.choose([form_of(form) for form in forms])

    @property
    def forms(self) -> dict[str, str]:
        """How each game is played, as :meth:`choose` takes it."""
        self._check_open()
        return self._core.forms()

    def check(self) -> None:
        """Waits for the device, and raises what went wrong on it since the last look."""
        self._check_open()
        self._core.check()

    @property
    def device(self) -> Any:
        """Torch's device."""
        return self._place

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
        return self._take_states(self._chosen(mask))

    def _put_states(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        self._core.idle()
        self._forget_slides()
        if states.ndim != 2 or len(states) != len(envs):
            raise AtariError(
                f"states are uint8 of shape {states.shape}, expected uint8 of shape ({len(envs)}, bytes)"
            )
        self._core.set_state(states, envs)

    def _put_state(self, row: NDArray[np.uint8], envs: list[int]) -> None:
        self._core.idle()
        self._forget_slides()
        self._core.set_state(row, envs)

    def _take_states(self, envs: list[int]) -> NDArray[np.uint8]:
        self._core.idle()
        return self._core.get_state(envs)

    def _turn(self) -> list[int]:
        group = self._core.turn if self.is_async else None
        return [] if group is None else list(range(group.first, group.first + group.size))

    def _set_turn(self, turn: list[int]) -> None:
        self._core.turn = self._core.of(turn) if turn else None

    def _pictures(self) -> tuple[NDArray[np.uint8], ...]:
        return self._core.pictures()

    # ------------------------------------------------------------------ tensors

    def _tensor(self, value: Any) -> Tensor:
        """A tensor of anything that can be one, also of another library's array."""
        torch = self._tensors
        if not isinstance(value, (torch.Tensor, np.ndarray)) and hasattr(value, "__dlpack__"):
            value = torch.from_dlpack(value)
        if isinstance(value, np.ndarray):
            # NumPy's read-only arrays cannot be tensors.
            value = torch.from_numpy(value if value.flags.writeable else value.copy())
            return self._sent_there(value)
        return torch.as_tensor(value, device=self._place)

    def _actions(self, actions: Any, count: int) -> Any:
        torch, chosen = self._tensors, self._tensor(actions)
        if self._continuous:
            if chosen.dtype != torch.float32:
                raise TypeError(f"actions have dtype {chosen.dtype}, expected float32")
            if tuple(chosen.shape) != (count, 3):
                raise AtariError(f"actions have shape {tuple(chosen.shape)}, expected ({count}, 3)")
            return _sticks(torch, chosen)
        if chosen.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"actions have dtype {chosen.dtype}, expected int64 or int32")
        if tuple(chosen.shape) != (count,):
            raise AtariError(f"actions have shape {tuple(chosen.shape)}, expected ({count},)")
        return chosen.contiguous()

    def _check_out(self, out: Any) -> None:
        torch, place, shape = self._tensors, self._place, self._out_shape
        view = self._view(out)
        if not isinstance(view, torch.Tensor) or (view.dtype, tuple(view.shape), view.device) != (
            torch.uint8,
            shape,
            place,
        ):
            found = tuple(getattr(view, name, None) for name in ("dtype", "shape", "device"))
            found_shape = None if found[1] is None else tuple(found[1])
            raise AtariError(
                f"out is {found[0]} of shape {found_shape} on {found[2]}, expected a contiguous uint8 "
                f"tensor of shape {shape} on {place}"
            )
        if not view.is_contiguous():
            raise AtariError(f"out is not contiguous, expected a contiguous uint8 tensor of shape {shape}")

    def _view(self, out: Any) -> Any:
        """The memory of `out` as a tensor."""
        torch = self._tensors
        if isinstance(out, (torch.Tensor, np.ndarray)) or not hasattr(out, "__dlpack__"):
            return out
        return torch.from_dlpack(out)

    def _results_to(self, out: Any, group: Group, *, with_final: bool, whole: bool = False) -> _Results:
        torch, place, shape = self._tensors, self._place, self._out_shape
        if out is not None:
            self._check_out(out)
        count = self.batch_size
        stride, slides = 0, False
        try:
            if self._sliding and out is None:
                sliding = self._sliding_of(group)
                stride, (obs, slides) = sliding.stride, sliding.next(whole=whole)
            else:
                self._forget_slides(group)
                obs = torch.empty(shape, dtype=torch.uint8, device=place) if out is None else self._view(out)
            return _Results(
                out=out,
                obs=obs,
                stride=stride,
                slides=slides,
                final=torch.zeros(shape, dtype=torch.uint8, device=place) if with_final else None,
                ram=torch.empty((count, 128), dtype=torch.uint8, device=place) if self._ram_info else None,
                numbers=torch.empty((_NUMBERS, count), dtype=torch.int32, device=place),
                flags=torch.empty((_FLAGS, count), dtype=torch.bool, device=place),
            )
        except torch.OutOfMemoryError as error:
            # What was to slide does not follow what nobody has written.
            self._forget_slides(group)
            whole_bytes = math.prod(shape) * (1 + with_final)
            planes = self._sliding if self._sliding and out is None else 0
            buffer_bytes = math.prod(shape) // (self._arguments["stack_num"] or 1) * planes
            raise cuda.out_of_memory(place, max(whole_bytes, buffer_bytes)) from error

    def _sliding_of(self, group: Group) -> Sliding:
        torch, place = self._tensors, self._place
        if place.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise AtariError(
                "observations that slide cannot be captured in a graph: make them with sliding=0"
            )
        if group.first not in self._slides:
            stack = self._arguments["stack_num"]
            self._slides[group.first] = Sliding(self._out_shape, stack, self._sliding, place)
        return self._slides[group.first]

    def _forget_slides(self, group: Group | None = None) -> None:
        """The last observations, of all groups or of one, are not where the next ones could follow them."""
        for first, sliding in self._slides.items():
            if group is None or group.first == first:
                sliding.forget()

    def _figures(self, results: _Results) -> dict[str, Any]:
        return self._infos(results.numbers, results.ram, self._everywhere)


class _Results:
    """Tensors that one call writes, and the actions that it reads."""

    def __init__(
        self,
        *,
        out: Any,
        obs: Tensor,
        stride: int,
        slides: bool,
        final: Tensor | None,
        ram: Tensor | None,
        numbers: Tensor,
        flags: Tensor,
    ) -> None:
        self.out, self.obs, self.final, self.ram = out, obs, final, ram
        self.numbers, self.flags = numbers, flags
        self.stride, self.slides = stride, slides
        self.actions: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that are written."""
        return self.obs, self.final, self.ram, self.numbers, self.flags

    def addresses(self) -> tuple[int, int, int, int, int, int, bool]:
        """Where they lie, in the core's order."""
        return (
            self.obs.data_ptr(),
            _address(self.final),
            _address(self.ram),
            self.numbers.data_ptr(),
            self.flags.data_ptr(),
            self.stride,
            self.slides,
        )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _sticks(torch: Any, actions: Tensor) -> Tensor:
    """(N, 4) float32 of (N, 3): to the right, up, trigger, strength.

    Sine and cosine are those of float64, rounded: what the CPU's float32 functions give, but for a last bit
    in rare cases, which matters only where a stick lies on the threshold to that bit.
    """
    radius, angle, fire = actions.unbind(1)
    wide = angle.double()
    right, up = radius * torch.cos(wide).float(), radius * torch.sin(wide).float()
    return torch.stack((right, up, fire, radius), 1).contiguous()
