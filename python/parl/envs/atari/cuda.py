"""Atari environments on a CUDA device: :class:`parl.AtariVectorEnv` with ``device="cuda"``."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from parl import cuda
from parl.envs.atari import arguments, step_results, variations
from parl.envs.atari.branches import BranchResult
from parl.envs.atari.groups import Group, Groups, parse_form
from parl.envs.atari.objects import TensorFieldReader
from parl.envs.atari.sliding import Sliding
from parl.envs.atari.vector import AtariVectorEnv
from parl.errors import AtariError

if TYPE_CHECKING:
    from torch import Tensor


class CudaAtariVectorEnv(AtariVectorEnv):
    """:class:`parl.AtariVectorEnv` on a CUDA device; ``AtariVectorEnv(device="cuda")`` makes one.

    Observations, rewards, flags and infos are CUDA tensors allocated by torch, and all work is enqueued on
    torch's current stream. ``reset``, ``step``, ``send`` and ``recv`` do not synchronize, so that ``step``
    can be captured in a CUDA graph. Results equal those of ``device="cpu"`` byte for byte, and states of
    either device can be loaded on the other.

    - ``boot`` defaults to ``"snapshot"``.
    - An action that is outside the action space or not finite is ignored. :meth:`check`, ``get_state``,
      ``set_state``, ``seed_states`` and ``render`` report it as an error, as they report an
      environment that was stepped before its first reset.
    - ``info`` always has ``episode_return`` and ``episode_length``; their masks show which entries are valid.
    - ``batch_size`` must divide ``num_envs``. If it is smaller, environments are stepped in groups of
      consecutive numbers, each on its own stream, so that a network can run on one group while the others
      step. ``send`` starts the step of a group. ``recv`` returns the results of the group that was sent
      first; torch's current stream waits for them, the host does not.
    - With ``sliding_buffer_planes``, observations are views of one buffer per group, in which a step writes
      only the newest plane. They are valid until the next ``reset``, ``step`` or ``send``. Such environments
      cannot be captured in a CUDA graph, because the address of the observation changes.
    - ``render`` synchronizes: the host draws the images from the states and returns NumPy arrays.
    - ``output`` has no effect: results are CUDA tensors.
    - All masks of infos that are true everywhere are the same tensor, which must not be written to.
    """

    _native: Groups

    def _make_native(self, config: dict[str, Any]) -> Any:
        import torch

        core = Groups(config, cuda.ordinal(self._arguments["device"]))
        self._torch_module, self._device = torch, core.device
        self._slides: dict[int, Sliding] = {}
        self._all_true = torch.ones(self.batch_size, dtype=torch.bool, device=core.device)
        self._reader: TensorFieldReader | None = None
        if self._fields:
            # The kernels write memories (batch_size, stack, 128), of which fields are made afterwards.
            self._memory_shape = (self.batch_size, *core.obs_shape)
            self._reader = TensorFieldReader(self._fields, core.device)
            core.obs_shape = [*core.obs_shape[:-1], self._reader.size]
        return core

    # ------------------------------------------------------------------ resets and steps

    def reset(
        self,
        *,
        seed: int | NDArray[Any] | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        out: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """As :meth:`parl.AtariVectorEnv.reset`, with tensors; does not synchronize.

        ``options["reset_mask"]`` may also be a bool tensor, such as ``terminated | truncated``; ``seed`` must
        then be an int or None. With options that change what environments play, it synchronizes.
        ``options["states"]`` is refused: ``set_state`` loads states.
        """
        self._check_open()
        variations.check_options(options)
        if options is not None and options.get("states") is not None:
            raise AtariError(
                f"states are an option of resets on the CPU, the environments are on "
                f"{self._arguments['device']!r}: load them with set_state"
            )
        torch, device = self._torch_module, self._device
        mask = None if options is None else options.get("reset_mask")
        if mask is not None and self.is_async:
            raise AtariError(
                f"reset_mask needs batch_size == num_envs: batch_size is {self.batch_size}, "
                f"num_envs {self.num_envs}; leave the mask out to reset all"
            )
        if isinstance(mask, torch.Tensor):
            given, chosen = self._seeds_and_mask(seed, mask)
        else:
            on_host = arguments.reset_mask(options, self.num_envs)
            seeds = arguments.seeds(seed, on_host, self.num_envs, self._seed_limit)
            # By NumPy, since new tensors are on torch's default device, which may not be the host.
            given = None if seeds is None else self._to_device(torch.from_numpy(np.array(seeds, np.int64)))
            chosen = None if on_host is None else self._to_device(torch.from_numpy(on_host.astype(np.uint8)))
        if out is not None:
            self._check_out(out)
        if options is not None and not variations.KEYS_SET.isdisjoint(options):
            wanted = variations.changed(
                self._variations, options, arguments.reset_mask(options, self.num_envs)
            )
            self._discard_results()
            self._forget_slides()
            self._vary(wanted or self._variations)
        if isinstance(seed, int) and seed >= 0:
            VectorEnv.reset(self, seed=seed)
        self._discard_results()
        for group in self._native.all:
            results = self._results_to(out if group.first == 0 else None, group, with_final=False, whole=True)
            seeds = None if given is None else given[group.first : group.first + group.size]
            group.begin(seeds, chosen, *results.tensors())
            group.core.reset(_address(seeds), _address(chosen), results.addresses(), group.stream(device))
            group.end()
            self._native.sent.append((group, results))
        self._native.last_batch, results = self._pop_first_results()
        obs = results.obs
        if out is not None and self._reader is not None:
            obs = self._view(out)
            obs.copy_(results.obs, non_blocking=True)
        if self.render_mode == "human":
            self._show()
        return obs, self._result_infos(results)

    def _discard_results(self) -> None:
        """Waits for the results that have not been received, in order, and discards them."""
        while self._native.sent:
            self._native.sent.popleft()[0].join()
        self._sent = None

    def _seeds_and_mask(self, seed: Any, mask: Any) -> tuple[Tensor | None, Tensor]:
        """Seeds and mask as device tensors: seed + i for the i-th environment of the mask, -1 elsewhere."""
        torch = self._torch_module
        if mask.dtype != torch.bool or tuple(mask.shape) != (self.num_envs,):
            raise AtariError(
                f"reset_mask is {mask.dtype} of shape {tuple(mask.shape)}, "
                f"expected bool of shape ({self.num_envs},)"
            )
        mask = mask.to(self._device, non_blocking=True)
        chosen = mask.to(torch.uint8)
        if seed is None:
            return None, chosen
        start = arguments.integer("seed", seed, 0, self._seed_limit - self.num_envs)
        counted = start - 1 + torch.cumsum(mask, 0)
        return torch.where(mask, counted, -1), chosen

    def _to_device(self, tensor: Tensor) -> Tensor:
        """A copy on the device through pinned memory, since copies from pageable memory synchronize."""
        if self._device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)

    def step(self, actions: Any, *, out: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As :meth:`parl.AtariVectorEnv.step`; does not synchronize.

        Args:
            actions: (batch_size,) int64 or int32, or with ``continuous`` (batch_size, 3) float32. A tensor,
                or an array that supports DLPack; copied to the device if it is elsewhere.
            out: uint8 tensor on the device to write the observations to.

        Raises:
            TypeError: actions have another dtype.
            ValueError: actions have another shape, or the environments are closed.
            CudaUnavailableError: torch cannot allocate the results. The environments have not been stepped
                and can be used again once there is memory.
        """
        self._check_open()
        if self.is_async:
            if out is not None:
                self._check_out(out)  # A wrong one does not use up the step.
            self.send(actions)
            return self.recv(out=out)
        if self._sent is not None:
            raise AtariError("step was called between send and recv: call recv first")
        return self._step_all(self._actions(actions, self.num_envs), out)

    def _step_all(self, actions: Any, out: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._launch(self._native.all[0], actions, out)
        return self._receive(out)

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Starts one step of the group of the last batch, or of ``env_id``; does not synchronize.

        With ``batch_size == num_envs`` the actions are for all environments, and the step starts in
        :meth:`recv`.

        Args:
            actions: as for :meth:`step`, one per environment of ``env_id``.
            env_id: (batch_size,) integers, the environments of one group in any order; None for the group of
                the last batch.

        Raises:
            ValueError: no batch has been received since the last ``send``, the group is still running a step,
                or ``env_id`` is not a group; and as :meth:`step`.
        """
        self._check_open()
        if not self.is_async and self._sent is not None:
            raise AtariError("environment 0 is still at work: call recv before the next send")
        envs = None if env_id is None else [operator.index(i) for i in env_id]
        group = self._native.last_batch if self.is_async else self._native.all[0]
        if envs is not None:
            group = self._native.of(envs)
        if group is None:
            raise AtariError("send has no batch to act for: call reset or recv first")
        if any(group is other for other, _ in self._native.sent):
            raise AtariError(f"environment {group.first} is still at work: call recv before the next send")
        chosen = self._actions(actions, group.size)
        # A copy in both cases: the caller may overwrite its actions before the step runs.
        if envs is None:
            chosen = chosen.clone()
        else:
            order = self._to_device(self._torch_module.from_numpy(np.argsort(envs)))
            chosen = chosen[order]
        if not self.is_async:
            self._sent = chosen
            return
        self._launch(group, chosen, None)
        if group is self._native.last_batch:
            self._native.last_batch = None

    def recv(self, *, out: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Returns the results of the group that was sent first, as :meth:`step`; does not synchronize.

        Args:
            out: uint8 tensor on the device to write the observations to.

        Raises:
            ValueError: no step has been sent.
        """
        self._check_open()
        if self.is_async:
            return self._receive(out)
        if self._sent is None:
            raise AtariError("recv would wait for ever: no step has been sent; call send first")
        if out is not None:
            self._check_out(out)  # A wrong one does not use up the step.
        actions, self._sent = self._sent, None
        return self._step_all(actions, out)

    def _launch(self, group: Group, actions: Any, out: Any) -> None:
        results = self._results_to(out, group, with_final=self._autoreset is AutoresetMode.SAME_STEP)
        group.begin(actions, *results.tensors())
        wide = actions.dtype == self._torch_module.int64
        group.core.step(actions.data_ptr(), wide, results.addresses(), group.stream(self._device))
        group.end()
        # Keeps the actions alive until the results are received, since the stream reads them later.
        results.actions = actions
        self._native.sent.append((group, results))

    def _pop_first_results(self) -> tuple[Group, _Results]:
        group, results = self._native.sent.popleft()
        group.join()
        if group.first:
            results.numbers[step_results.ENV_ID] += group.first
        if self._reader is not None:
            self._read_fields(self._reader, results)
        return group, results

    def _read_fields(self, reader: TensorFieldReader, results: _Results) -> None:
        """Replaces memories by fields; final observations of rows without an end stay zeros."""
        results.obs = reader.read(results.obs).view(self._out_shape)
        if results.final is not None:
            ended = results.flags[step_results.ENDED].view(-1, *[1] * (len(self._out_shape) - 1))
            results.final = reader.read(results.final).view(self._out_shape) * ended

    def _receive(self, out: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self._native.sent:
            raise AtariError("recv would wait for ever: no step has been sent; call send first")
        if out is not None:
            self._check_out(out)
        self._native.last_batch, results = self._pop_first_results()
        torch = self._torch_module
        obs = results.obs
        if out is not None and results.out is not out:
            # The step was sent before `out` was known.
            obs = self._view(out)
            obs.copy_(results.obs, non_blocking=True)
        numbers, flags = results.numbers, results.flags
        rewards = numbers[step_results.REWARD]
        if self._reward_dtype != np.int32:
            rewards = rewards.to(getattr(torch, self._reward_dtype.name))
        infos = self._result_infos(results)
        if results.actions is not None:
            if self._clips:
                infos["raw_reward"], infos["_raw_reward"] = numbers[step_results.RAW_REWARD], infos["_env_id"]
            returns = numbers[step_results.EPISODE_RETURN]
            step_results.add_ends(infos, returns, numbers, flags, results.final)
            if self._game_continues:
                step_results.add_game(infos, numbers, flags, any_ended=True)
        if self.render_mode == "human":
            self._show()
        terminated, truncated = flags[step_results.TERMINATED], flags[step_results.TRUNCATED]
        return obs if out is None else out, rewards, terminated, truncated, infos

    def calibrate(self) -> list[tuple[str, int, float]]:
        """Measures the fastest form for the game on this device, uses it and stores it on disk.

        It takes 300 steps with random actions first, since environments are alike after a reset. Without a
        measurement the form is grouped, and the window the one with the fewest instructions. Results do not
        depend on the form. All environments must be reset afterwards.

        Returns:
            One entry per form and window measured: the form (``"grouped"`` or ``"plain"``),
            the window as a power of two of image rows, and the seconds per step of a group.

        Raises:
            AtariError: the environments play several games.
        """
        self._check_open()
        self._native.check_idle()
        self._forget_slides()
        return self._native.calibrate()

    @property
    def calibrated(self) -> bool:
        """Whether the forms came from a stored measurement when these environments were made."""
        return self._native.calibrated

    def choose(self, *forms: str) -> None:
        """Sets the forms in which the kernels run the games. Results do not depend on the form.

        ``PARL_CUDA_FORM`` sets the form of all environments that a process makes.

        Args:
            *forms: one for all games, or one per game: ``"grouped:<window>"`` (consoles of a warp that are at
                the same instruction run together; the window is the exponent of a power of two of image rows:
                0, 2, 4, or 9 for the whole image) or ``"plain"`` (each console runs by itself).

        Raises:
            ValueError: there is no such form or window, the number of forms does not fit, or a step has been
                sent and not received.
        """
        self._check_open()
        self._native.check_idle()
        self._native.choose([parse_form(form) for form in forms])

    @property
    def forms(self) -> dict[str, str]:
        """Form of each game, as :meth:`choose` takes it."""
        self._check_open()
        return self._native.forms()

    def check(self) -> None:
        """Synchronizes, and raises an error that occurred on the device since the last check.

        If errors of several kinds have occurred, each call reports one of them.

        Raises:
            ValueError: an action was invalid, or an environment was stepped before its first reset.
        """
        self._check_open()
        self._native.check()

    @property
    def device(self) -> Any:
        """The torch device of the environments."""
        return self._device

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory of the environments, with :attr:`stack_bytes` and without observations."""
        return self._native.device_bytes

    @property
    def stack_bytes(self) -> int:
        """Bytes of device memory that the driver reserves for stacks when the kernels first run.

        They are the largest stack of a kernel for every thread that the device can run. All environments of
        a process share them.
        """
        return self._native.stack_bytes

    @property
    def num_threads(self) -> int:
        """0, because no CPU thread steps environments."""
        return 0

    # ------------------------------------------------------------------ states

    def get_state(self, mask: Any = None) -> NDArray[np.uint8]:
        """As :meth:`parl.AtariVectorEnv.get_state`; synchronizes."""
        self._check_open()
        return self._take_states(self._envs_of_mask(mask))

    def branch(
        self, states: NDArray[np.uint8], actions: Any, *, observe: bool = True, seeds: Any = None
    ) -> BranchResult:
        """Raises AtariError: branches run on the CPU, from states of either device."""
        raise AtariError(
            f"branch runs on the CPU, the environments on {self._arguments['device']!r}: make environments "
            'with the same arguments and device="cpu", and pass the states to their branch'
        )

    def _put_states(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        self._native.check_idle()
        self._forget_slides()
        if states.ndim != 2 or len(states) != len(envs):
            raise AtariError(
                f"states are uint8 of shape {states.shape}, expected uint8 of shape ({len(envs)}, bytes)"
            )
        self._native.set_state(states, envs)

    def _put_state(self, row: NDArray[np.uint8], envs: list[int]) -> None:
        self._native.check_idle()
        self._forget_slides()
        self._native.set_state(row, envs)

    def _take_states(self, envs: list[int]) -> NDArray[np.uint8]:
        self._native.check_idle()
        return self._native.get_state(envs)

    def _last_batch(self) -> list[int]:
        group = self._native.last_batch if self.is_async else None
        return [] if group is None else list(range(group.first, group.first + group.size))

    def _set_last_batch(self, envs: list[int]) -> None:
        self._native.last_batch = self._native.of(envs) if envs else None

    def _pictures(self) -> tuple[NDArray[np.uint8], ...]:
        return self._native.pictures()

    # ------------------------------------------------------------------ tensors

    def _tensor(self, value: Any) -> Tensor:
        """``value`` as a tensor on the device; also arrays of other libraries that support DLPack."""
        torch = self._torch_module
        if not isinstance(value, (torch.Tensor, np.ndarray)) and hasattr(value, "__dlpack__"):
            value = torch.from_dlpack(value)
        if isinstance(value, np.ndarray):
            # torch takes no read-only arrays.
            value = torch.from_numpy(value if value.flags.writeable else value.copy())
            return self._to_device(value)
        return torch.as_tensor(value, device=self._device)

    def _actions(self, actions: Any, count: int) -> Any:
        torch, chosen = self._torch_module, self._tensor(actions)
        if self._continuous:
            if chosen.dtype != torch.float32:
                raise TypeError(f"actions have dtype {chosen.dtype}, expected float32")
            if tuple(chosen.shape) != (count, 3):
                raise AtariError(f"actions have shape {tuple(chosen.shape)}, expected ({count}, 3)")
            return _joystick_positions(torch, chosen)
        if chosen.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"actions have dtype {chosen.dtype}, expected int64 or int32")
        if tuple(chosen.shape) != (count,):
            raise AtariError(f"actions have shape {tuple(chosen.shape)}, expected ({count},)")
        return chosen.contiguous()

    def _check_out(self, out: Any) -> None:
        torch, device, shape = self._torch_module, self._device, self._out_shape
        view = self._view(out)
        if not isinstance(view, torch.Tensor) or (view.dtype, tuple(view.shape), view.device) != (
            torch.uint8,
            shape,
            device,
        ):
            found = tuple(getattr(view, name, None) for name in ("dtype", "shape", "device"))
            found_shape = None if found[1] is None else tuple(found[1])
            raise AtariError(
                f"out is {found[0]} of shape {found_shape} on {found[2]}, expected a contiguous uint8 "
                f"tensor of shape {shape} on {device}"
            )
        if not view.is_contiguous():
            raise AtariError(f"out is not contiguous, expected a contiguous uint8 tensor of shape {shape}")

    def _view(self, out: Any) -> Any:
        """The memory of ``out`` as a tensor."""
        torch = self._torch_module
        if isinstance(out, (torch.Tensor, np.ndarray)) or not hasattr(out, "__dlpack__"):
            return out
        return torch.from_dlpack(out)

    def _results_to(self, out: Any, group: Group, *, with_final: bool, whole: bool = False) -> _Results:
        """The tensors that the next step of ``group`` writes; ``whole``: all planes of the observations."""
        torch, device, shape = self._torch_module, self._device, self._out_shape
        if out is not None:
            self._check_out(out)
        if self._reader is not None:
            # `out` gets the fields later.
            shape, out = self._memory_shape, None
        count = self.batch_size
        stride, slides = 0, False
        try:
            if self._sliding and out is None:
                sliding = self._sliding_buffer(group)
                stride, (obs, slides) = sliding.stride, sliding.next(whole=whole)
            else:
                self._forget_slides(group)
                obs = torch.empty(shape, dtype=torch.uint8, device=device) if out is None else self._view(out)
            return _Results(
                out=out,
                obs=obs,
                stride=stride,
                slides=slides,
                final=torch.zeros(shape, dtype=torch.uint8, device=device) if with_final else None,
                ram=torch.empty((count, 128), dtype=torch.uint8, device=device) if self._ram_info else None,
                numbers=torch.empty((step_results.NUMBERS, count), dtype=torch.int32, device=device),
                flags=torch.empty((step_results.FLAGS, count), dtype=torch.bool, device=device),
            )
        except torch.OutOfMemoryError as error:
            # The next observation cannot reuse planes that were never written.
            self._forget_slides(group)
            whole_bytes = math.prod(shape) * (1 + with_final)
            planes = self._sliding if self._sliding and out is None else 0
            buffer_bytes = math.prod(shape) // (self._arguments["stack_num"] or 1) * planes
            raise cuda.out_of_memory(device, max(whole_bytes, buffer_bytes)) from error

    def _sliding_buffer(self, group: Group) -> Sliding:
        torch, device = self._torch_module, self._device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise AtariError(
                "sliding observations cannot be captured in a CUDA graph: make the environments with "
                "sliding_buffer_planes=0"
            )
        if group.first not in self._slides:
            stack = self._arguments["stack_num"]
            self._slides[group.first] = Sliding(self._out_shape, stack, self._sliding, device)
        return self._slides[group.first]

    def _forget_slides(self, group: Group | None = None) -> None:
        """Makes the next observations of ``group``, or of all groups, be written with all their planes."""
        for first, sliding in self._slides.items():
            if group is None or group.first == first:
                sliding.forget()

    def _result_infos(self, results: _Results) -> dict[str, Any]:
        return step_results.infos_of(results.numbers, self._all_true, results.ram)


class _Results:
    """The tensors that one step writes, and the actions that it reads."""

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
        """All tensors that the step writes."""
        return self.obs, self.final, self.ram, self.numbers, self.flags

    def addresses(self) -> tuple[int, int, int, int, int, int, bool]:
        """Addresses, stride and flag in the order of ``_native.CudaAtariBatch.step``."""
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


def _joystick_positions(torch: Any, actions: Tensor) -> Tensor:
    """Converts (N, 3) radius, angle, fire to (N, 4) float32 right, up, fire, radius.

    Sine and cosine are computed in float64 and rounded. They can differ from the CPU's float32 functions in
    the last bit, which changes a result only if a value equals the threshold up to that bit.
    """
    radius, angle, fire = actions.unbind(1)
    wide = angle.double()
    right, up = radius * torch.cos(wide).float(), radius * torch.sin(wide).float()
    return torch.stack((right, up, fire, radius), 1).contiguous()
