"""Many Atari environments at once: :class:`AtariVectorEnv` and :func:`make_vec`."""

from __future__ import annotations

import inspect
import operator
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from parl import _native
from parl.atari.catalogue import game_id
from parl.atari.roms import rom_folders
from parl.envs import arguments
from parl.envs.arguments import INT32_MAX
from parl.envs.presets import preset_options
from parl.envs.window import Window, grid
from parl.errors import AtariError

Arrays = NDArray[Any]
# Numbers, flags, and whether an episode ended.
_Results = tuple[Arrays, Arrays, bool]
_BUFFERS = 4
_ACTION_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))
_FPS = 60.0
_RENDER_MODES = ("rgb_array", "rgb_grid", "human")
# Rows of the whole numbers that the core gives.
_REWARD, _RAW, _LIVES, _FRAME, _EPISODE_FRAME, _ENV_ID, _FINAL, _RETURN, _LENGTH = 0, 1, 2, 3, 4, 5, 6, 9, 10
_GAME_RETURN = 11
# Rows of the flags.
_ENDED, _GAME_OVER = 2, 3
# Ways of losing a life after which the game goes on, although the step says that it has terminated.
_SEVERAL_ENDS = ("reports", "continues")


class AtariVectorEnv(VectorEnv[Any, Any, Any]):
    """Atari 2600 games as a Gymnasium vector environment, stepped by Rust threads.

    Keywords that ``ale_py.AtariVectorEnv`` (0.12.1) has keep their names, defaults and meaning, and the
    numbers are the same, byte for byte; what it lets hang or crash is an error here. Results never depend on
    ``num_threads``, ``batch_size`` or the order in which environments finish.

    Args:
        game: a game's id (``"breakout"``, ``"Breakout"``), or a sequence of ids: environment i plays number
            i mod their count, and all games have the actions of :attr:`full_action_space`.
        num_envs: N, at least 1.
        batch_size: results per ``step``; 0 for N. With fewer than N, ``step`` works on the environments of
            the last batch while the others run (``send`` and ``recv``).
        num_threads: threads at work, the caller among them; 0 for one per core. Never more than N.
        thread_affinity_offset: thread i stays on core number i + this of those that the process may use,
            counted round and round; negative: the system places threads. The caller, who is thread 0 while
            ``batch_size`` is N, is never moved.
        max_num_frames_per_episode: emulated frames of steps after which an episode is truncated; None for no
            limit. See ``limit_counts``.
        repeat_action_probability: in each frame the previous action goes on with this probability (0 to 1).
        full_action_space: all actions that the game knows, instead of those that do something in it.
        continuous: actions are float32 (radius, angle, fire) of a stick; paddles move by the radius.
        continuous_action_threshold: where a direction or the trigger begins.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or Gymnasium's names for them. With
            ``DISABLED`` an ended environment must be reset through ``options={"reset_mask": mask}``.
        img_height, img_width: size of a picture; None for the native one (210 x 160 in most games).
        grayscale: brightness instead of red, green, blue.
        stack_num: pictures in an observation, the newest last; None for one, without the axis of the stack.
        frameskip: frames per step, or (low, high): drawn from ``low..high-1`` for each step.
        maxpool: the brighter of the last two frames, pixel by pixel.
        noop_max: bound of the idle frames after a reset, at most 100,000.
        episodic_life: a lost life ends the episode, and the game is reset.
        life_loss_info: a lost life is reported as ``terminated``, and the game goes on.
        reward_clipping: rewards are cut to -1..1; also ``"clamp"`` and ``"sign"``, which mean the same.
        use_fire_reset: FIRE is pressed once after a reset, in games that have it.
        device: ``"cpu"``, or ``"cuda"`` and ``"cuda:1"``, which give a
            :class:`~parl.envs.atari_cuda.CudaAtariVectorEnv`: CUDA tensors in and out, the same numbers.
        obs_type: ``"gray"``, ``"rgb"``, ``"index"`` (palette indices at the native size, never pooled) or
            ``"ram"`` (the console's 128 bytes); None follows ``grayscale``.
        channel_order: ``"last"``, (stack, h, w, 3), or ``"first"``, (3 stack, h, w).
        mode, difficulty: the game's variant and switches; None for its first mode and difficulty 0.
        life_loss: instead of the two above: ``"plain"``, ``"reports"``, ``"ends"``, ``"any"`` (the last life
            too) or ``"continues"`` (looked at after the step; the next episode goes on with the same game).
        padding: older pictures after a reset are zeros (``"zero"``) or the first picture (``"reset"``).
        noops: how many idle frames follow a reset: ``"after_fire"``: below ``noop_max``, FIRE counted;
            ``"before_fire"``: one more, before FIRE; ``"numpy"``: 1 to ``noop_max``, from NumPy's generator.
        max_num_steps_per_episode: steps after which an episode is truncated; 0 for no limit.
        limit_counts: ``max_num_frames_per_episode`` counts frames of ``"steps"``, or all of the ``"console"``
            since the reset began.
        both_ends: ``terminated`` and ``truncated`` may both be true; else ``terminated`` wins.
        show_last_frame: a step that the game ends on one of its last two frames shows that frame, too.
        boot: ``"exact"``: an unseeded reset runs the console's boot on the memory as it is, some 70 frames.
            ``"snapshot"``: it puts back the state that a seeded reset gives; idle frames differ as before.
            None: ``"exact"`` on the CPU, ``"snapshot"`` on a CUDA device.
        lockstep: ``recv`` gives results in the order of ``send``, not of completion.
        ram_info: ``info["ram"]`` holds the console's memory, (N, 128) uint8.
        reward_dtype: of the rewards; int32 unless another is named.
        output: ``"numpy"`` arrays, or ``"torch"`` tensors that share their memory.
        render_mode: ``"rgb_array"``: :meth:`render` gives one native picture per environment; ``"rgb_grid"``:
            one picture of all of them; ``"human"``: a window shows that one after each step.
        sliding: on a CUDA device, planes per environment of a buffer over which observations slide as views,
            so that a step writes one plane and copies none; more than ``stack_num``. An observation then
            lasts until the next call. 0: each is a tensor of its own.

    Observations are written once, by the thread that ran the console, into an array that is handed out. It
    stays the caller's: its memory is used again only after nothing refers to it any more. ``out=`` names an
    array of your own.

    Raises:
        AtariError: (a ValueError) an argument is out of its bounds; the message names it.
        MemoryError: there is not enough memory for that many environments or observations of that size.
        FileNotFoundError: the game's ROM is not there; says where it was looked for.
        CudaUnavailableError: ``device="cuda"`` cannot be had.

    Examples:
        >>> import parl
        >>> envs = parl.AtariVectorEnv("breakout", num_envs=2)
        >>> obs, info = envs.reset(seed=0)
        >>> obs.shape, info["lives"].tolist()
        ((2, 4, 84, 84), [5, 5])
        >>> obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
        >>> envs.close()
    """

    # Until the core is there, there is nothing to close. Gymnasium's own class says False.
    closed = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Environments on the device that ``device`` names."""
        if cls is AtariVectorEnv and str(kwargs.get("device", "cpu")).startswith("cuda"):
            from parl.envs.atari_cuda import CudaAtariVectorEnv

            return object.__new__(CudaAtariVectorEnv)
        return super().__new__(cls)

    def __init__(
        self,
        game: str | Sequence[str],
        num_envs: int = 1,
        *,
        batch_size: int = 0,
        num_threads: int = 0,
        thread_affinity_offset: int = -1,
        max_num_frames_per_episode: int | None = 108_000,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        img_height: int | None = 84,
        img_width: int | None = 84,
        grayscale: bool = True,
        stack_num: int | None = 4,
        frameskip: int | tuple[int, int] = 4,
        maxpool: bool = True,
        noop_max: int = 30,
        episodic_life: bool = False,
        life_loss_info: bool = False,
        reward_clipping: bool | Literal["clamp", "sign"] = True,
        use_fire_reset: bool = True,
        device: str = "cpu",
        obs_type: Literal["gray", "rgb", "index", "ram"] | None = None,
        channel_order: Literal["last", "first"] = "last",
        mode: int | None = None,
        difficulty: int | None = None,
        life_loss: Literal["plain", "reports", "ends", "any", "continues"] | None = None,
        padding: Literal["zero", "reset"] = "zero",
        noops: Literal["after_fire", "before_fire", "numpy"] = "after_fire",
        max_num_steps_per_episode: int = 0,
        limit_counts: Literal["steps", "console"] = "steps",
        both_ends: bool = False,
        show_last_frame: bool = False,
        boot: Literal["exact", "snapshot"] | None = None,
        lockstep: bool = False,
        ram_info: bool = False,
        reward_dtype: str = "int32",
        output: Literal["numpy", "torch"] = "numpy",
        render_mode: Literal["rgb_array", "rgb_grid", "human"] | None = None,
        sliding: int = 0,
    ) -> None:
        self._arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        arguments.check_device(device)
        if render_mode not in (None, *_RENDER_MODES):
            raise AtariError(f"render_mode is {render_mode!r}, expected one of {_RENDER_MODES} or None")
        if output not in ("numpy", "torch"):
            raise AtariError(f'output is {output!r}, expected "numpy" or "torch"')
        if limit_counts not in ("steps", "console"):
            raise AtariError(f'limit_counts is {limit_counts!r}, expected "steps" or "console"')
        if channel_order not in ("last", "first"):
            raise AtariError(f'channel_order is {channel_order!r}, expected "last" or "first"')
        stack = 1 if stack_num is None else arguments.whole("stack_num", stack_num, 1, 1024)
        self._sliding = _planes_to_slide(sliding, stack, device)
        games = [game_id(name) for name in ([game] if isinstance(game, str) else game)]
        if not games:
            raise AtariError("game is an empty sequence, expected at least one game")
        ids = list(dict.fromkeys(games))
        self.num_envs = arguments.whole("num_envs", num_envs, 1, INT32_MAX)
        self.batch_size = arguments.whole("batch_size", batch_size, 0, self.num_envs) or self.num_envs
        self._autoreset = arguments.autoreset_mode(autoreset_mode)
        limit = INT32_MAX if max_num_frames_per_episode is None else max_num_frames_per_episode
        limit = arguments.whole("max_num_frames_per_episode", limit, 1, INT32_MAX)
        native = obs_type in ("index", "ram")
        if (img_height is None) != (img_width is None):
            raise AtariError(f"img_height is {img_height} and img_width {img_width}: give both or neither")
        size = None if img_height is None or img_width is None or native else (img_height, img_width)
        if size is not None:
            rows, columns = size
            size = (
                arguments.whole("img_height", rows, 1, 4096),
                arguments.whole("img_width", columns, 1, 4096),
            )
        frames = arguments.frameskip(frameskip)
        shown = obs_type or ("gray" if grayscale else "rgb")
        plane_bytes = arguments.plane_bytes(shown, size)
        arguments.check_memory(self.num_envs, stack * plane_bytes if device == "cpu" else 0)
        self._reward_dtype = np.dtype(reward_dtype)
        self._seed_limit = arguments.INT64_MAX if noops == "numpy" else INT32_MAX
        self._core: Any = self._make_core(
            {
                "games": ids,
                "folders": [str(folder) for folder, _ in rom_folders()],
                "assignment": [ids.index(games[i % len(games)]) for i in range(self.num_envs)],
                "num_threads": arguments.whole("num_threads", num_threads, 0, INT32_MAX),
                "thread_affinity_offset": arguments.affinity(thread_affinity_offset),
                "batch_size": self.batch_size,
                "lockstep": bool(lockstep),
                "ram_info": bool(ram_info),
                "entropy": secrets.randbits(64),
                "repeat_action_probability": arguments.probability(repeat_action_probability),
                "max_num_frames_per_episode": limit if limit_counts == "steps" else INT32_MAX,
                "max_num_steps_per_episode": arguments.whole(
                    "max_num_steps_per_episode", max_num_steps_per_episode, 0, INT32_MAX
                ),
                "console_frame_limit": limit if limit_counts == "console" else 0,
                "life": self.life_loss,
                "reward_clip": arguments.clip(reward_clipping),
                "frameskip": frames,
                "maxpool": bool(maxpool),
                "stack_num": stack,
                "padding": padding,
                "noops": noops,
                "noop_max": arguments.noop_max(noop_max),
                "use_fire_reset": bool(use_fire_reset),
                "show_last_frame": bool(show_last_frame),
                "both_ends": bool(both_ends),
                "boot": boot or ("exact" if device == "cpu" else "snapshot"),
                "autoreset": self._autoreset.value,
                "obs_type": shown,
                "channels_first": channel_order == "first",
                "size": size,
                "full_action_space": bool(full_action_space),
                "continuous": bool(continuous),
                "continuous_action_threshold": float(continuous_action_threshold),
                "mode": arguments.choice("mode", mode),
                "difficulty": arguments.choice("difficulty", difficulty),
            }
        )
        self.closed = False
        self.games = games
        self.render_mode = render_mode
        self.metadata = {
            "autoreset_mode": self._autoreset,
            "render_modes": list(_RENDER_MODES),
            "render_fps": _FPS / frames[0],
        }
        self._continuous = bool(continuous)
        self._ram_info = bool(ram_info)
        self._clips = reward_clipping is not False
        self._several_ends = self.life_loss in _SEVERAL_ENDS
        self._torch = _torch() if output == "torch" else None
        self._buffers: list[Arrays] = []
        self._window: Window | None = None
        self._preset: str | None = None
        # Actions that `send` has left for `recv` where all environments step together.
        self._sent: Arrays | None = None
        shape = tuple(self._core.obs_shape)
        if stack_num is None and not (shown == "rgb" and channel_order == "first"):
            # Colour planes that come first have no axis of their own for the stack.
            shape = shape[1:]
        self._out_shape = (self.batch_size, *shape)
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._observation_space: spaces.Space[Any] | None = None
        if continuous:
            low_corner = np.array([0.0, -np.pi, 0.0], np.float32)
            high_corner = np.array([1.0, np.pi, 1.0], np.float32)
            self.single_action_space = spaces.Box(low_corner, high_corner, dtype=np.float32)
        else:
            self.single_action_space = spaces.Discrete(len(self._core.actions))
        self.action_space = batch_space(self.single_action_space, self.batch_size)

    def _make_core(self, config: dict[str, Any]) -> Any:
        return _native.AtariBatch(config)

    # ------------------------------------------------------------------ what there is

    @property
    def observation_space(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of a whole batch, made when first asked for: Gymnasium's holds four arrays as large as one."""
        if self._observation_space is None:
            self._observation_space = batch_space(self.single_observation_space, self.batch_size)
        return self._observation_space

    @observation_space.setter
    def observation_space(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, space: spaces.Space[Any]
    ) -> None:
        self._observation_space = space

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """What an ended environment does next; also ``metadata["autoreset_mode"]``."""
        return self._autoreset

    @property
    def settings(self) -> dict[str, Any]:
        """Every keyword with its value, and the preset it was made from; as JSON knows them."""
        plain = {
            name: value.value
            if isinstance(value, AutoresetMode)
            else value.item()
            if isinstance(value, np.generic)
            else value
            for name, value in self._arguments.items()
        }
        return {"preset": self._preset, **plain}

    @property
    def life_loss(self) -> str:
        """What a lost life does: the value of ``life_loss``, whichever keyword said it."""
        given = self._arguments
        legacy = "ends" if given["episodic_life"] else "reports" if given["life_loss_info"] else "plain"
        return given["life_loss"] or legacy

    @property
    def frame_stack(self) -> tuple[int, Literal["zero", "first"]]:
        """Pictures in an observation, if it can be rebuilt from those of its episode, and what pads it.

        Else (1, "zero"): where a lost life is reported as an end that the stack does not stop at
        (``life_loss`` of ``"reports"`` and ``"continues"``), and where colours stand among the pictures.
        """
        given = self._arguments
        colours = given["obs_type"] == "rgb" or (given["obs_type"] is None and not given["grayscale"])
        if self._several_ends or (colours and given["channel_order"] == "first"):
            return 1, "zero"
        return int(given["stack_num"] or 1), "zero" if given["padding"] == "zero" else "first"

    @property
    def num_threads(self) -> int:
        """Threads that step environments."""
        return self._core.num_threads

    @property
    def action_codes(self) -> tuple[int, ...]:
        """The console's action code of each discrete action."""
        return tuple(self._core.actions)

    @property
    def is_async(self) -> bool:
        """``batch_size`` is smaller than ``num_envs``."""
        return self.batch_size < self.num_envs

    # ------------------------------------------------------------------ resets

    def reset(
        self,
        *,
        seed: int | Arrays | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        out: Arrays | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode everywhere, or where ``options["reset_mask"]`` is true.

        With ``batch_size < num_envs`` results that are still on their way are thrown away, all environments
        are reset, and the first batch is returned; the others come from ``recv``.

        Args:
            seed: environment i gets seed + i, or entry i of an integer array, at most 2^31 - 1, or 2^63 - 1
                with ``noops="numpy"``. With a mask, the environments of the mask are counted. A negative
                seed leaves an environment's generators alone. None: all go on.
            options: ``{"reset_mask": (N,) bool array}``; other keys are ignored.
            out: uint8 array to write observations to.

        Returns:
            observations, uint8 (N, shape...), and infos: int32 arrays ``env_id``, ``lives``,
            ``frame_number``, ``episode_frame_number``, each with its mask ``_key``.

        Raises:
            TypeError: seed or mask of another type.
            ValueError: of another length, or out of its bounds; the environments are closed.
        """
        self._check_open()
        mask = arguments.reset_mask(options, self.num_envs)
        if mask is not None and self.is_async:
            raise AtariError("reset_mask needs batch_size == num_envs: others may be running")
        seeds = arguments.seeds(seed, mask, self.num_envs, self._seed_limit)
        if isinstance(seed, int) and seed >= 0:
            super().reset(seed=seed)
        if self.is_async:
            self._core.send_reset(seeds)
            obs, *_, infos = self._received(out)
            return obs, infos
        self._sent = None
        obs, ram = self._target(out), self._ram()
        numbers, _, _ = self._core.reset(seeds, None if mask is None else mask.tolist(), obs, ram)
        infos = self._infos(numbers, ram, _all_of(numbers))
        if self.render_mode == "human":
            self._show()
        return self._out(obs), infos

    # ------------------------------------------------------------------ steps

    def step(self, actions: Any, *, out: Arrays | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One action for each environment of the batch.

        Args:
            actions: integers (batch_size,), or float32 (batch_size, 3) with ``continuous``.
            out: uint8 array to write observations to.

        Returns:
            observations uint8 (batch_size, shape...), rewards, terminated and truncated (batch_size,),
            infos. Beside the figures of :meth:`reset`, infos hold ``raw_reward`` when rewards are clipped,
            and on steps on which episodes ended ``episode_return`` (before clipping) and ``episode_length``
            (steps) with their masks; with SAME_STEP also ``final_obs``, whose other rows are zeros, and
            ``final_info``. Where a lost life is reported as an end and the game goes on (``life_loss`` of
            ``"reports"`` and ``"continues"``), ``game_over`` says where the game has ended too, or was cut
            (EnvPool's ``info["terminated"]``), and on steps on which episodes ended ``game_return`` holds the
            points of the whole game, with the mask ``_game_return``.

        Raises:
            TypeError: actions of another type.
            ValueError: of another shape, or not an action; environments have not been reset, have ended
                (DISABLED), or are closed.
        """
        self._check_open()
        if self.batch_size < self.num_envs:
            self.send(actions)
            return self.recv(out=out)
        if self._sent is not None:
            raise AtariError("step comes between send and recv: call recv first")
        return self._stepped(self._actions(actions, self.num_envs), out)

    def _stepped(self, actions: Arrays, out: Arrays | None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, ram, final_obs = self._target(out), self._ram(), self._final()
        results: _Results = self._core.step(actions, obs, final_obs, ram)
        if self.render_mode == "human":
            self._show()
        return self._results(obs, *results, final_obs, ram)

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Queues one step for each environment of the last batch, or of ``env_id``.

        With ``batch_size == num_envs`` the actions are for all environments, ``env_id`` may give their order,
        and the step runs in :meth:`recv`.

        Raises:
            ValueError: nothing has been received that these actions could be for, or an environment is still
                at work; and as :meth:`step`.
        """
        self._check_open()
        if self.is_async:
            envs = self._core.turn() if env_id is None else [operator.index(i) for i in env_id]
            if not envs:
                raise AtariError("send has nobody to act for: call reset or recv first")
            self._core.send(self._actions(actions, len(envs)), envs)
            return
        if self._sent is not None:
            raise AtariError("environment 0 is still at work: call recv before the next send")
        chosen = self._actions(actions, self.num_envs).copy()
        if env_id is not None:
            order = np.asarray(env_id)
            if order.shape != (self.num_envs,) or (np.sort(order) != np.arange(self.num_envs)).any():
                raise AtariError(
                    f"env_id is {env_id}, expected each of 0..{self.num_envs} once: batch_size == num_envs"
                )
            chosen[order] = chosen.copy()
        self._core.check_actions(chosen)
        self._sent = chosen

    def recv(self, *, out: Arrays | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for the next ``batch_size`` results, as of :meth:`step`; ``info["env_id"]`` says whose.

        Raises:
            ValueError: fewer results are on their way, so that the wait would never end.
        """
        self._check_open()
        if self.is_async:
            return self._received(out)
        if self._sent is None:
            raise AtariError("recv would wait for ever: nothing is on its way; call send first")
        actions, self._sent = self._sent, None
        return self._stepped(actions, out)

    def _received(self, out: Arrays | None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, ram, final_obs = self._target(out), self._ram(), self._final()
        results: _Results = self._core.recv(obs, final_obs, ram)
        if self.render_mode == "human":
            self._show()
        return self._results(obs, *results, final_obs, ram)

    # ------------------------------------------------------------------ states

    def get_state(self, mask: Arrays | None = None) -> NDArray[np.uint8]:
        """Everything that makes the future of environments: consoles, generators, counters, stacks.

        Args:
            mask: (N,) bool; None for all.

        Returns:
            uint8 (number of environments, size). Rows are checksummed and know their game; they may be kept,
            sent to other processes and loaded into other environments of the same game and settings.
        """
        self._check_open()
        return self._core.get_state(self._chosen(mask))

    def set_state(self, states: NDArray[np.uint8], mask: Arrays | None = None) -> None:
        """Takes back what :meth:`get_state` gave; the future is then the same, bit for bit.

        Raises:
            AtariError: a row is of another game, version or shape of observation, or damaged. Nothing is
                changed.
        """
        self._check_open()
        self._put_states(arguments.byte_array("states", states), self._chosen(mask))

    def seed_states(self, state: NDArray[np.uint8], first: int = 0, last: int | None = None) -> None:
        """Puts one state, (size,) or (1, size), into environments ``first..last``, ``last`` excluded."""
        self._check_open()
        end = self.num_envs if last is None else arguments.whole("last", last, 0, self.num_envs)
        envs = list(range(arguments.whole("first", first, 0, end), end))
        self._put_state(arguments.byte_array("state", state).reshape(1, -1), envs)

    def clone(self, source: int, target: int | Sequence[int]) -> None:
        """Copies environment ``source`` over environment(s) ``target``."""
        self._check_open()
        envs = [target] if isinstance(target, int) else [operator.index(i) for i in target]
        self._put_state(self._take_states([arguments.whole("source", source, 0, self.num_envs - 1)]), envs)

    def _put_state(self, row: NDArray[np.uint8], envs: list[int]) -> None:
        self._put_states(np.repeat(row, len(envs), axis=0), envs)

    def _put_states(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        self._core.set_state(states, envs)

    def _take_states(self, envs: list[int]) -> NDArray[np.uint8]:
        return self._core.get_state(envs)

    def _turn(self) -> list[int]:
        return self._core.turn()

    def _set_turn(self, turn: list[int]) -> None:
        self._core.set_turn(turn)

    def plain_state(self) -> tuple[Any, tuple[str, ...]]:
        """Consoles and generators as data, for :class:`parl.envs.snapshot.Snapshot`."""
        self._check_idle()
        state = {"states": self._take_states(list(range(self.num_envs))), "turn": self._turn()}
        return state, ("_np_random", "_np_random_seed", "single_action_space", "action_space")

    def set_plain_state(self, state: Any) -> None:
        """Takes back what :meth:`plain_state` gave."""
        self._put_states(state["states"], list(range(self.num_envs)))
        self._set_turn(state["turn"])

    def _check_idle(self) -> None:
        self._check_open()
        if self._sent is not None:
            raise AtariError("environment 0 is still at work: call recv first")

    def __getstate__(self) -> dict[str, Any]:
        self._check_idle()
        return {
            "arguments": self._arguments,
            "states": self._take_states(list(range(self.num_envs))),
            "turn": self._turn(),
            "preset": self._preset,
            "spec": self.spec,
            "np_random": (self._np_random, self._np_random_seed),
            "spaces": (self.single_action_space, self.action_space),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        AtariVectorEnv.__init__(self, **state["arguments"])
        self._put_states(state["states"], list(range(self.num_envs)))
        self._set_turn(state["turn"])
        self._preset = state["preset"]
        self.spec = state["spec"]
        self._np_random, self._np_random_seed = state["np_random"]
        self.single_action_space, self.action_space = state["spaces"]

    def _chosen(self, mask: Arrays | None) -> list[int]:
        if mask is None:
            return list(range(self.num_envs))
        mask = np.asarray(mask)
        if mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise AtariError(
                f"mask is {mask.dtype} of shape {mask.shape}, expected bool of shape ({self.num_envs},)"
            )
        return np.nonzero(mask)[0].tolist()

    # ------------------------------------------------------------------ pictures

    def render(self) -> Any:
        """What the consoles show, in colour and at the native size.

        Returns:
            ``"rgb_array"``: a tuple of one (rows, 160, 3) uint8 array per environment; ``"rgb_grid"``: one
            array (grid rows * rows, grid columns * 160, 3), environment 0 at the top left, the next ones to
            its right; ``"human"``: None, a window shows the grid.

        Raises:
            AtariError: made without ``render_mode``, or not reset yet.
        """
        self._check_open()
        if self.render_mode is None:
            raise AtariError(f"render needs a render_mode, one of {_RENDER_MODES}, from the beginning")
        if self.render_mode == "human":
            return self._show()
        pictures = self._pictures()
        return pictures if self.render_mode == "rgb_array" else grid(pictures)

    def _pictures(self) -> tuple[Arrays, ...]:
        return tuple(self._core.picture(i) for i in range(self.num_envs))

    def _show(self) -> None:
        if self._window is None:
            self._window = Window(", ".join(dict.fromkeys(self.games)))
        self._window.show(grid(self._pictures()))

    # ------------------------------------------------------------------ end

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads and frees the environments; closing twice does nothing."""
        del kwargs
        self._core.close()
        if self._window is not None:
            self._window.close()
            self._window = None

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self._core.close()
            self.closed = True

    def __repr__(self) -> str:
        return f"AtariVectorEnv({', '.join(dict.fromkeys(self.games))}, num_envs={self.num_envs})"

    # ------------------------------------------------------------------ arrays

    def _check_open(self) -> None:
        if self.closed:
            raise AtariError("the environments are closed")

    def _target(self, out: Arrays | None) -> Arrays:
        if out is not None:
            shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", None)
            if shape != self._out_shape or dtype != np.uint8:
                raise AtariError(
                    f"out is {dtype} of shape {shape}, expected a uint8 array of shape {self._out_shape}"
                )
            return out
        for i in range(len(self._buffers)):
            # One reference is the list's, one the call's: nobody else looks at it.
            if sys.getrefcount(self._buffers[i]) == _UNSHARED:
                return self._buffers[i]
        array = np.empty(self._out_shape, np.uint8)
        if len(self._buffers) < _BUFFERS:
            self._buffers.append(array)
        return array

    def _final(self) -> Arrays | None:
        return np.zeros(self._out_shape, np.uint8) if self._autoreset is AutoresetMode.SAME_STEP else None

    def _ram(self) -> Arrays | None:
        return np.empty((self.batch_size, 128), np.uint8) if self._ram_info else None

    def _out(self, array: Arrays) -> Any:
        return array if self._torch is None else self._torch(array)

    def _actions(self, actions: Any, count: int) -> Arrays:
        if not isinstance(actions, np.ndarray) and hasattr(actions, "detach"):
            actions = actions.detach().cpu().numpy()
        array = np.asarray(actions)
        if self._continuous:
            if array.dtype != np.float32:
                raise TypeError(f"actions have dtype {array.dtype}, expected float32")
            return np.ascontiguousarray(array)
        if array.dtype.kind not in "iu":
            raise TypeError(f"actions have dtype {array.dtype}, expected integers")
        if array.shape != (count,):
            raise AtariError(f"actions have shape {array.shape}, expected ({count},)")
        return np.ascontiguousarray(array, None if array.dtype in _ACTION_DTYPES else np.int64)

    def _results(
        self,
        obs: Arrays,
        numbers: Arrays,
        flags: Arrays,
        any_ended: bool,
        final_obs: Arrays | None,
        ram: Arrays | None,
    ) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        rewards = numbers[_REWARD]
        if self._reward_dtype != np.int32:
            rewards = rewards.astype(self._reward_dtype)
        infos = self._infos(numbers, ram, _all_of(numbers))
        if self._clips:
            infos["raw_reward"], infos["_raw_reward"] = numbers[_RAW], infos["_env_id"]
        if any_ended:
            self._add_ends(infos, numbers, flags, None if final_obs is None else self._out(final_obs))
        self._add_game(infos, numbers, flags, any_ended)
        if self._torch is not None:
            obs, rewards, ends, cuts = map(self._torch, (obs, rewards, flags[0], flags[1]))
            return obs, rewards, ends, cuts, infos
        return obs, rewards, flags[0], flags[1], infos

    def _infos(self, numbers: Any, ram: Any, here: Any) -> dict[str, Any]:
        """Figures of a step by name, as arrays or tensors; ``here``: that all environments have them."""
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
        if ram is not None:
            infos["ram"], infos["_ram"] = ram, here
        return infos

    def _add_game(self, infos: dict[str, Any], numbers: Any, flags: Any, any_ended: bool) -> None:
        """Whether the game has ended, where that is not what ``terminated`` and ``truncated`` say."""
        if not self._several_ends:
            return
        infos["game_over"], infos["_game_over"] = flags[_GAME_OVER], infos["_env_id"]
        if any_ended:
            infos["game_return"], infos["_game_return"] = numbers[_GAME_RETURN], flags[_GAME_OVER]

    def _add_ends(self, infos: dict[str, Any], numbers: Any, flags: Any, final_obs: Any) -> None:
        ended = flags[_ENDED]
        infos["episode_return"], infos["_episode_return"] = numbers[_RETURN], ended
        infos["episode_length"], infos["_episode_length"] = numbers[_LENGTH], ended
        if final_obs is not None:
            final: dict[str, Any] = {}
            for i, name in enumerate(("lives", "frame_number", "episode_frame_number")):
                final[name], final[f"_{name}"] = numbers[_FINAL + i], ended
            infos["final_obs"], infos["_final_obs"] = final_obs, ended
            infos["final_info"], infos["_final_info"] = final, ended


def _all_of(numbers: Arrays) -> Arrays:
    """One mask for all keys of a step: every environment has these figures."""
    return np.ones(numbers.shape[1], np.bool_)


def make_vec(
    game: str | Sequence[str], num_envs: int = 1, *, preset: str = "ale", **options: Any
) -> AtariVectorEnv:
    """:class:`AtariVectorEnv` with the settings of a preset.

    Args:
        game: one game or several.
        num_envs: N.
        preset: ``"ale"`` (``ale_py.AtariVectorEnv``), ``"gymnasium"`` (``AtariEnv`` with
            ``AtariPreprocessing`` and ``FrameStackObservation``), ``"envpool"``, ``"nature"`` (DQN, 2015) or
            ``"machado"`` (2018); what they change stands in :data:`parl.envs.presets.PRESETS`.
        options: keywords of :class:`AtariVectorEnv`, which win over the preset's.

    Raises:
        ConfigError: there is no such preset; and as :class:`AtariVectorEnv`.
    """
    envs = AtariVectorEnv(game, num_envs, **{**preset_options(preset), **options})
    envs._preset = preset
    return envs


def _refcount_of_unshared() -> int:
    kept = [np.empty(0)]
    return sys.getrefcount(kept[0])


_UNSHARED = _refcount_of_unshared()


def _torch() -> Callable[[Arrays], Any]:
    import torch

    return torch.from_numpy


# What `__new__` takes would stand for the keywords else.
AtariVectorEnv.__signature__ = inspect.Signature(  # pyright: ignore[reportAttributeAccessIssue]
    list(inspect.signature(AtariVectorEnv.__init__).parameters.values())[1:]
)


def _planes_to_slide(sliding: int, stack_num: int, device: str) -> int:
    """``sliding`` if these environments can have it."""
    planes = arguments.whole("sliding", sliding, 0, INT32_MAX)
    if planes == 0:
        return 0
    if not str(device).startswith("cuda"):
        raise AtariError(f"sliding is {planes} on device={device!r}: observations slide on CUDA devices only")
    if not 2 <= stack_num < planes:
        raise AtariError(
            f"sliding is {planes} and stack_num {stack_num}, expected a stack of at least 2, and more planes"
        )
    return planes
