"""Vector environments of Atari 2600 games: :class:`AtariVectorEnv` and :func:`make_vec`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from parl import _native
from parl.atari.catalogue import frames_per_second
from parl.envs.atari import arguments, step_results, variations
from parl.envs.atari.core_config import RENDER_MODES, core_config, life_loss
from parl.envs.atari.objects import ObjectBatch, fields_of
from parl.envs.atari.options import AtariOptions
from parl.envs.atari.presets import preset_options
from parl.envs.atari.states import Arrays, StatefulVectorEnv
from parl.envs.atari.variations import Variation
from parl.envs.atari.window import Window, grid
from parl.errors import AtariError
from parl.references import is_unshared
from parl.signatures import show_init, show_options

# Of one step: the numbers and flags of `parl.envs.atari.results`, and whether any episode ended.
_Stepped = tuple[Arrays, Arrays, bool]
_BUFFERS = 4
# Values of `life_loss` with which `terminated` is set at a lost life although the game continues.
_CONTINUING_LIFE_LOSS = ("reports", "continues")


@show_init
class AtariVectorEnv(StatefulVectorEnv):
    """Atari 2600 games as a Gymnasium vector environment, stepped by Rust threads.

    Keywords of ``ale_py.AtariVectorEnv`` (0.12.1) have the same names, defaults and meaning, and the results
    are equal byte for byte; calls that make ale-py hang or crash raise an error here. Results do not depend
    on ``num_threads``, ``batch_size`` or the order in which environments finish.

    Args:
        game: a game's id (``"breakout"``, ``"Breakout"``), or a sequence of ids: environment i plays the game
            at index i modulo their number, and all environments have the actions of
            ``full_action_space=True``.
        num_envs: number of environments N, at least 1.
        batch_size: number of results per ``step``; 0 for N. Below N, ``step`` sends actions to the
            environments of the last batch and returns the first ``batch_size`` results, while the other
            environments run (see ``send`` and ``recv``).
        num_threads: number of threads that step environments, the calling thread included; 0 for one per
            core. At most N are used, except by :meth:`branch`.
        thread_affinity_offset: thread i is pinned to core number i + offset, modulo their number, of the
            cores that the process may use; negative for no pinning. The calling thread, which is thread 0
            when ``batch_size`` is N, is never pinned.
        max_num_frames_per_episode: emulated frames after which an episode is truncated; None for no limit.
            See ``limit_counts``.
        repeat_action_probability: probability, for each frame, that the previous action is repeated (0 to 1);
            or a list with one value per environment, see ``mode``.
        full_action_space: whether all actions of the console are available, or only those that have an effect
            in the game.
        continuous: whether actions are float32 (radius, angle, fire) of a joystick; paddles move by the
            radius.
        continuous_action_threshold: value above which a direction or the trigger counts as pressed.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or Gymnasium's names for them. With
            ``DISABLED`` an ended environment must be reset through ``options={"reset_mask": mask}``.
        img_height, img_width: size of an image in pixels; None for the native size (210 x 160 in most games).
        grayscale: whether pixels are gray values; otherwise they are red, green and blue.
        stack_num: number of images in an observation, the newest last; None for a single image without the
            stack dimension.
        frameskip: frames per step, or (low, high) to draw the number from ``low..high-1`` for each step; or a
            list of these, see ``mode``.
        maxpool: whether an image is the pixelwise maximum of the last two frames.
        noop_max: upper bound of the number of no-op frames after a reset, at most 100,000. See ``noops``.
        episodic_life: whether a lost life ends the episode and resets the game.
        life_loss_info: whether a lost life sets ``terminated`` while the game continues.
        reward_clipping: whether rewards are clipped to -1..1; ``"clamp"`` and ``"sign"`` do the same.
        use_fire_reset: whether FIRE is pressed once after a reset, in games that have the action.
        device: ``"cpu"``; or ``"cuda"`` or ``"cuda:<number>"`` for a
            :class:`~parl.envs.atari.cuda.CudaAtariVectorEnv`, which takes and returns CUDA tensors with the
            same values.
        obs_type: ``"gray"``, ``"rgb"``, ``"index"`` (palette indices at the native size, without max pooling)
            ``"ram"`` (the 128 bytes of the console) or ``"objects"`` (the game's fields of
            :func:`parl.atari.objects`, one byte each, named by :attr:`object_names`; one game);
            None follows ``grayscale``.
        channel_order: ``"last"`` for (stack, H, W, 3), ``"first"`` for (3 * stack, H, W).
        mode, difficulty: the game's mode and difficulty; None for its first mode, or with ``players=2`` its
            first one for two players, and difficulty 0. Or a sequence: environment i has the entry at index i
            modulo their number. ``reset`` can change these and all other values that may differ between
            environments; see :attr:`variations`.
        life_loss: effect of a lost life, in place of ``episodic_life`` and ``life_loss_info``: ``"plain"``
            (none), ``"reports"`` (``terminated`` is set, the game continues; ale-py's ``life_loss_info``),
            ``"ends"`` (the episode ends and the game is reset; ale-py's ``episodic_life``), ``"any"`` (as
            ``"ends"``, the last life included; Gymnasium's ``terminal_on_life_loss``) or ``"continues"`` (the
            episode ends, and the next one continues the same game; lives are compared after the whole step;
            limits on frames and steps count the whole game and end it; EnvPool's ``episodic_life``).
        padding: what fills the older images of a stack after a reset: ``"zero"``, or ``"reset"`` for copies
            of the first image.
        noops: frames after a reset: ``"after_fire"`` (ale-py): FIRE if ``use_fire_reset``, then no-ops,
            together at most ``noop_max - 1``, but FIRE always; ``"before_fire"`` (EnvPool): no-ops, then
            FIRE, together 1 to ``noop_max``; ``"numpy"`` (Gymnasium): 1 to ``noop_max`` no-ops, drawn by
            NumPy's generator.
        max_num_steps_per_episode: steps after which an episode is truncated; 0 for no limit.
        limit_counts: what ``max_num_frames_per_episode`` counts: ``"steps"`` for the frames of steps,
            ``"console"`` for all frames since the reset began.
        allow_terminated_and_truncated: whether ``terminated`` and ``truncated`` may both be true in one step;
            otherwise ``truncated`` is false where ``terminated`` is true.
        show_last_frame: whether an observation includes the frame on which the game ends, if it is one of the
            last two frames of the step.
        boot: what an unseeded reset does: ``"exact"`` runs the console's boot, about 70 frames, with the
            memory left as it is; ``"snapshot"`` restores the state after the boot of a seeded reset. No-op
            frames are drawn in both cases. None: ``"exact"`` on the CPU, ``"snapshot"`` on a CUDA device.
        ordered: whether ``recv`` returns results in the order of ``send``, instead of the order of
            completion.
        ram_info: whether ``info["ram"]`` holds the memory of the consoles, (N, 128) uint8.
        sound: whether ``info["audio"]`` holds the sound of the last ``frameskip`` frames (with (low, high),
            ``high-1``), (N, 512 * frames) uint8 at 30,720 samples per second (PAL: 25,600), oldest first;
            each frame makes 512 samples as :attr:`parl.atari.Console.audio`. Not on a CUDA device.
        reward_dtype: dtype of the rewards, a signed integer or a float.
        output: ``"numpy"`` for arrays, ``"torch"`` for CPU tensors.
        render_mode: what :meth:`render` returns: ``"rgb_array"``: one native image per environment;
            ``"rgb_grid"``: one image with all of them; ``"human"``: nothing, a window shows the grid after
            each step.
        players: 1, or 2 for games that two play at the same time: actions are then (N, 2), or with
            ``continuous`` (N, 2, 3), and rewards (N, 2), the first player's first.
            :func:`parl.atari.two_player_games` lists the games and their modes for two players; in other
            modes the console plays the second player, whose actions have no effect. Not on a CUDA device.
        sliding_buffer_planes: on a CUDA device, number of image planes per environment of a buffer in which
            observations are views, so that a step writes one plane and copies none; must exceed
            ``stack_num``. An observation is then valid until the next call. 0: each observation is a new
            tensor.
        patches: bytes of the ROM that are replaced: a mapping of addresses of the cartridge (0xF000 to
            0xFFFF) to values, with keys (bank, address) if it has several banks of 4 KiB; or a list of
            mappings.
        ram: bytes of RAM that a reset sets, after the boot and before the no-op frames: a mapping of indices
            of ``info["ram"]`` (or addresses 0x80 to 0xFF) to values; or a list of mappings.
        hold: as ``ram``, and the bytes are set before each frame too. Not on a CUDA device.
        modifications: name of a modification of :func:`parl.variations`, or a tuple of names; or a list of
            these.

    The thread that runs a console writes the observation directly into the array that is returned. The array
    belongs to the caller: its memory is reused only after no reference to it is left. With ``out=`` the
    observations are written into a given array.

    Raises:
        AtariError: (a ValueError) an argument is out of its bounds; the message names it.
        MemoryError: the environments or their observations need more memory than there is.
        FileNotFoundError: the game's ROM was not found; the message lists the folders searched.
        CudaUnavailableError: there is no such CUDA device; the message says why.

    Examples:
        >>> import parl
        >>> envs = parl.AtariVectorEnv("breakout", num_envs=2)
        >>> obs, info = envs.reset(seed=0)
        >>> obs.shape, info["lives"].tolist()
        ((2, 4, 84, 84), [5, 5])
        >>> obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
        >>> envs.close()
    """

    # There is nothing to close until `_native` exists; Gymnasium's base class has False here.
    closed = True

    if not TYPE_CHECKING:  # Type checkers and `help()` see the parameters of `__init__`.

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """An instance of this class, or of the CUDA class if ``device`` is a CUDA device."""
            if cls is AtariVectorEnv and str(kwargs.get("device", "cpu")).startswith("cuda"):
                from parl.envs.atari.cuda import CudaAtariVectorEnv

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
        repeat_action_probability: float | Sequence[float] = 0.0,
        full_action_space: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        img_height: int | None = 84,
        img_width: int | None = 84,
        grayscale: bool = True,
        stack_num: int | None = 4,
        frameskip: int | tuple[int, int] | Sequence[Any] = 4,
        maxpool: bool = True,
        noop_max: int = 30,
        episodic_life: bool = False,
        life_loss_info: bool = False,
        reward_clipping: bool | Literal["clamp", "sign"] = True,
        use_fire_reset: bool = True,
        device: str = "cpu",
        obs_type: Literal["gray", "rgb", "index", "ram", "objects"] | None = None,
        channel_order: Literal["last", "first"] = "last",
        mode: int | Sequence[int | None] | None = None,
        difficulty: int | Sequence[int | None] | None = None,
        life_loss: Literal["plain", "reports", "ends", "any", "continues"] | None = None,
        padding: Literal["zero", "reset"] = "zero",
        noops: Literal["after_fire", "before_fire", "numpy"] = "after_fire",
        max_num_steps_per_episode: int = 0,
        limit_counts: Literal["steps", "console"] = "steps",
        allow_terminated_and_truncated: bool = False,
        show_last_frame: bool = False,
        boot: Literal["exact", "snapshot"] | None = None,
        ordered: bool = False,
        ram_info: bool = False,
        sound: bool = False,
        reward_dtype: str = "int32",
        output: Literal["numpy", "torch"] = "numpy",
        render_mode: Literal["rgb_array", "rgb_grid", "human"] | None = None,
        players: int = 1,
        sliding_buffer_planes: int = 0,
        patches: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None = None,
        ram: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None = None,
        hold: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None = None,
        modifications: str | Sequence[Any] | None = None,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        of_subclass = set(self.__dict__)
        # Lists and mappings stay the caller's.
        self._arguments = given | {name: copy.deepcopy(given[name]) for name in variations.KEYS}
        checked = core_config(self._arguments)
        self.num_envs, self.batch_size = checked.num_envs, checked.batch_size
        self.players, self._autoreset = checked.players, checked.autoreset
        self._variations = checked.variations
        self._sliding = checked.sliding_planes
        self._reward_dtype, self._seed_limit = checked.reward_dtype, checked.seed_limit
        # Fields of memory that the core's observations are replaced by.
        self._fields = checked.fields
        self._config = checked.values
        self._native: Any = self._make_native(self._config)
        self.closed = False
        # All variations of `_native`, in its order.
        self._known = tuple(variations.distinct(self._variations))
        self.render_mode = render_mode
        self.metadata = {"autoreset_mode": self._autoreset, "render_modes": list(RENDER_MODES)}
        self._set_render_fps()
        self._continuous = bool(continuous)
        # Of an environment's action.
        self._action_shape = (*((2,) if self.players == 2 else ()), *((3,) if self._continuous else ()))
        # Observations show images, not memory.
        self._draws = checked.obs_type not in ("ram", "objects")
        self._ram_info = bool(ram_info)
        self._sound = bool(sound)
        self._clips = reward_clipping is not False
        self._game_continues = self.life_loss in _CONTINUING_LIFE_LOSS
        self._torch = _torch() if output == "torch" else None
        self._buffers: list[Arrays] = []
        self._window: Window | None = None
        self._preset: str | None = None
        # With batch_size == num_envs: the actions of `send`, which `recv` steps with.
        self._sent: Arrays | None = None
        shape = tuple(self._native.obs_shape)
        if stack_num is None and not (checked.obs_type == "rgb" and channel_order == "first"):
            # With channels first, colors and stack share one dimension.
            shape = shape[1:]
        self._out_shape = (self.batch_size, *shape)
        self.single_observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._observation_space: spaces.Space[Any] | None = None
        self.single_action_space = _action_space(len(self._native.actions), self._continuous, self.players)
        self.action_space = batch_space(self.single_action_space, self.batch_size)
        # Attributes that are not a subclass's; Gymnasium sets the first three.
        own = {"spec", "_np_random", "_np_random_seed", "_own", *self.__dict__} - of_subclass
        self._own = frozenset(own)

    def _make_native(self, config: dict[str, Any]) -> Any:
        batch = _native.AtariBatch(config)
        return ObjectBatch(batch, self._fields) if self._fields else batch

    # ------------------------------------------------------------------ properties

    @property
    def observation_space(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Space of a batch of observations; made on first use, since it holds four arrays of that size."""
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
        """When an ended environment is reset; also ``metadata["autoreset_mode"]``."""
        return self._autoreset

    @property
    def settings(self) -> dict[str, Any]:
        """Every keyword with its value, and the name of the preset or None; values that JSON can hold."""
        plain = {
            name: value.value
            if isinstance(value, AutoresetMode)
            else variations.plain(name, value)
            if name in variations.KEYS
            else np.dtype(value).name
            if name == "reward_dtype"
            else value.item()
            if isinstance(value, np.generic)
            else value
            for name, value in self._arguments.items()
        }
        return {"preset": self._preset, **plain}

    @property
    def variations(self) -> tuple[Variation, ...]:
        """What each environment plays from its next reset on, and with which settings, (N,).

        ``reset`` changes them; an environment that resets itself keeps its variation.
        """
        return self._variations

    @property
    def games(self) -> list[str]:
        """Ids of the games that :attr:`variations` name, each once."""
        return list(dict.fromkeys(one.game for one in self._variations))

    @property
    def life_loss(self) -> str:
        """Effect of a lost life as a value of ``life_loss``, also where another keyword set it."""
        return life_loss(self._arguments)

    @property
    def frame_stack(self) -> tuple[int, Literal["zero", "first"]]:
        """Number of images in an observation and their padding, for a replay that stores single images.

        (1, "zero") where a stack cannot be rebuilt from the images of its episode: where an episode ends at a
        lost life and the stack continues across that end (``life_loss`` of ``"reports"`` and
        ``"continues"``), and where colors and stack share one dimension.
        """
        given = self._arguments
        is_rgb = given["obs_type"] == "rgb" or (given["obs_type"] is None and not given["grayscale"])
        if self._game_continues or (is_rgb and given["channel_order"] == "first"):
            return 1, "zero"
        return int(given["stack_num"] or 1), "zero" if given["padding"] == "zero" else "first"

    @property
    def object_names(self) -> tuple[str, ...]:
        """Names of the fields in the last dimension of observations with ``obs_type="objects"``.

        Raises:
            AtariError: observations are something else.
        """
        if not self._fields:
            raise AtariError(f'obs_type is {self._arguments["obs_type"]!r}, expected "objects"')
        return tuple(field.name for field in self._fields)

    @property
    def num_threads(self) -> int:
        """Number of threads that step environments."""
        return self._native.num_threads

    @property
    def action_codes(self) -> tuple[int, ...]:
        """The console's action code of each discrete action."""
        return tuple(self._native.actions)

    @property
    def is_async(self) -> bool:
        """Whether ``batch_size`` is smaller than ``num_envs``."""
        return self.batch_size < self.num_envs

    # ------------------------------------------------------------------ resets

    def reset(
        self,
        *,
        seed: int | Arrays | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        out: Arrays | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, or those where ``options["reset_mask"]`` is true.

        With ``batch_size < num_envs``, results that have not been received are discarded, all environments
        are reset, and the first batch is returned; ``recv`` returns the others.

        Args:
            seed: environment i gets seed + i, or entry i of an integer array; at most 2^31 - 1, or 2^63 - 1
                with ``noops="numpy"``. With a mask, i counts the environments of the mask. An environment
                that gets a negative seed keeps the state of its generator, as all do with None; -1 gives only
                environment 0 a negative one.
            options: ``{"reset_mask": (N,) bool array or tensor}``; ``"states"``, uint8 rows of
                :meth:`get_state`, one for each environment that is reset, from which these continue in place
                of the start of the game, with the generators of the states or new ones of ``seed`` (not on a
                CUDA device); and what the environments that are reset play from now on: ``"mode"``,
                ``"difficulty"``, ``"repeat_action_probability"``, ``"frameskip"``, ``"patches"``, ``"ram"``,
                ``"hold"``, ``"modifications"`` and ``"game"``, with one value or N. A variation that the
                batch has not had makes it load the game anew. Other keys are ignored, unless they look like
                a misspelled one.
            out: uint8 array to write the observations to.

        Returns:
            observations, uint8 (batch_size, *shape), and infos: int32 arrays ``env_id``, ``lives``,
            ``frame_number`` and ``episode_frame_number``, each with a mask under the key with a leading
            underscore.

        Raises:
            TypeError: seed, mask or states have another type.
            ValueError: seed, mask or an option have another length or are out of their bounds; a row of
                states is damaged or of another game; a key of ``options`` is nearly that of an option; or the
                environments are closed.
        """
        self._check_open()
        variations.check_options(options)
        mask = arguments.reset_mask(options, self.num_envs)
        states = arguments.states(options, mask, self.num_envs)
        if mask is not None and self.is_async:
            raise AtariError(
                f"reset_mask needs batch_size == num_envs: batch_size is {self.batch_size}, "
                f"num_envs {self.num_envs}; leave the mask out to reset all"
            )
        if states is not None and self.is_async:
            raise AtariError(
                f"states needs batch_size == num_envs: batch_size is {self.batch_size}, num_envs "
                f"{self.num_envs}"
            )
        seeds = arguments.seeds(seed, mask, self.num_envs, self._seed_limit)
        if out is not None:
            self._target(out)
        before = self._variations
        wanted = variations.changed(self._variations, options, mask)
        envs = self._envs_of_mask(mask)
        # Other bytes of a ROM end its episodes.
        running = None if wanted is None or states is None else self._take_states(envs)
        if wanted is not None:
            self._vary(wanted)
        if states is not None:
            try:
                self._continue_from(states, envs, seeds)
            except Exception:
                if running is not None:
                    self._vary(before)
                    self._put_states(running, envs)
                raise
        if isinstance(seed, int) and seed >= 0:
            super().reset(seed=seed)
        if self.is_async:
            self._native.send_reset(seeds)
            obs, *_, infos = self._receive(out)
            return obs, infos
        self._sent = None
        if states is not None:
            # Nothing is left to reset; the reset below returns the observations.
            mask, seeds = np.zeros(self.num_envs, np.bool_), None
        obs, ram, audio = self._target(out), self._ram(), self._audio()
        numbers, _, _ = self._native.reset(seeds, None if mask is None else mask.tolist(), obs, ram, audio)
        infos = step_results.infos_of(numbers, step_results.all_true(numbers), ram, audio)
        if self.render_mode == "human":
            self._show()
        return self._out(obs), infos

    def _continue_from(self, states: NDArray[np.uint8], envs: list[int], seeds: Sequence[int] | None) -> None:
        """Loads states, and seeds the generators of ``envs`` with the entries of ``seeds`` from 0 on."""
        self._put_states(states, envs)
        chosen = [] if seeds is None else [env for env in envs if seeds[env] >= 0]
        if seeds is not None and chosen:
            self._native.reseed(chosen, [seeds[env] for env in chosen])

    def _vary(self, wanted: Sequence[Variation]) -> None:
        """Sets what the environments play from their next reset on.

        Raises:
            AtariError: a game does not have its mode, difficulty or bytes, or another action space or size of
                observations than the environments.
        """
        if self._sound and any(one.frameskip != self._variations[0].frameskip for one in wanted):
            raise AtariError("sound is True and frameskip changes, expected one value for all environments")
        if self._fields and fields_of(tuple(dict.fromkeys(one.game for one in wanted))) != self._fields:
            raise AtariError(f'obs_type is "objects" and the game changes, expected {self.games[0]!r}')
        if not set(wanted) <= set(self._known):
            known = dict.fromkeys([*self._variations, *wanted])
            config = {**self._config, **variations.config_of(self._variations, known)}
            native = self._make_native(config)
            found, expected = ((list(one.actions), list(one.obs_shape)) for one in (native, self._native))
            if found != expected:
                native.close()
                raise AtariError(
                    f"the games would have actions {found[0]} and observations {found[1]}, the environments "
                    f"have {expected[0]} and {expected[1]}: make environments with these games"
                )
            native.adopt(self._native)
            self._native, self._known = native, tuple(known)
        self._native.assign(variations.numbers_of(wanted, self._known))
        self._variations = tuple(wanted)
        self._set_render_fps()

    def _set_render_fps(self) -> None:
        """Sets the rate of :meth:`render` in the metadata: the steps per second of environment 0."""
        first = self._variations[0]
        self.metadata["render_fps"] = frames_per_second(first.game) / first.frameskip[0]

    # ------------------------------------------------------------------ steps

    def step(self, actions: Any, *, out: Arrays | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the environments of the batch by one action each.

        Args:
            actions: (batch_size,) integers, or with ``continuous`` (batch_size, 3) float32; with
                ``players=2`` (batch_size, 2), or (batch_size, 2, 3).
            out: uint8 array to write the observations to.

        Returns:
            observations, uint8 (batch_size, *shape), rewards, terminated and truncated (batch_size,), and
            infos. With ``players=2`` rewards, ``raw_reward`` and ``episode_return`` are (batch_size, 2).
            Infos hold the entries of :meth:`reset`; ``raw_reward`` if rewards are clipped; and where
            episodes ended in this step ``episode_return`` (before clipping) and ``episode_length`` (in steps)
            with their masks, with SAME_STEP also ``final_obs`` (zeros in rows without an end) and
            ``final_info``. With ``life_loss`` of ``"reports"`` or ``"continues"``, ``game_over`` is true
            where the whole game has ended or was truncated (``game_over & ~truncated`` is EnvPool's
            ``info["terminated"]``), and ``game_return`` holds the points of the game, with the mask
            ``_game_return``, in steps in which episodes ended.

        Raises:
            TypeError: actions have another dtype.
            ValueError: actions have another shape, are outside the action space or, with ``continuous``, not
                finite (larger ones act as in ale-py); or environments have not been reset, have ended
                (DISABLED) or are closed.
        """
        self._check_open()
        if self.batch_size < self.num_envs:
            if out is not None:
                self._target(out)  # A wrong one does not use up the step.
            self.send(actions)
            return self.recv(out=out)
        if self._sent is not None:
            raise AtariError("step was called between send and recv: call recv first")
        return self._step_all(self._actions(actions, self.num_envs), out)

    def _step_all(self, actions: Arrays, out: Arrays | None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, ram, audio, final_obs = self._target(out), self._ram(), self._audio(), self._final()
        stepped: _Stepped = self._native.step(actions, obs, final_obs, ram, audio)
        if self.render_mode == "human":
            self._show()
        return self._results(obs, *stepped, final_obs, ram, audio)

    def send(self, actions: Any, env_id: Any = None) -> None:
        """Queues one step for each environment of the last batch, or of ``env_id``.

        With ``batch_size == num_envs`` the actions are for all environments, and the step runs in
        :meth:`recv`.

        Args:
            actions: as for :meth:`step`, one per environment of ``env_id``.
            env_id: (n,) integers, the environments; None for those of the last batch. With ``batch_size ==
                num_envs`` a permutation of all environments.

        Raises:
            ValueError: no batch has been received since the last ``send``, or an environment is still running
                a step; and as :meth:`step`.
        """
        self._check_open()
        if self.is_async:
            if env_id is None:
                envs = self._native.ready_envs()[-self.batch_size :]
            else:
                envs = arguments.env_numbers("env_id", env_id, self.num_envs)
            if not envs:
                raise AtariError("send has no batch to act for: call reset or recv first")
            self._native.send(self._actions(actions, len(envs)), envs)
            return
        if self._sent is not None:
            raise AtariError("environment 0 is still at work: call recv before the next send")
        chosen = self._actions(actions, self.num_envs).copy()
        if env_id is not None:
            order = np.asarray(env_id)
            if order.shape != (self.num_envs,) or (np.sort(order) != np.arange(self.num_envs)).any():
                raise AtariError(
                    f"env_id is {env_id}, expected each of 0 to {self.num_envs - 1} once: all environments "
                    "step together"
                )
            chosen[order] = chosen.copy()
        self._native.check_actions(chosen)
        self._sent = chosen

    def recv(self, *, out: Arrays | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Waits for the next ``batch_size`` results and returns them as :meth:`step` does.

        ``info["env_id"]`` holds the numbers of their environments.

        Args:
            out: uint8 array to write the observations to.

        Raises:
            ValueError: fewer than ``batch_size`` steps have been sent, so that the wait would never end.
        """
        self._check_open()
        if self.is_async:
            return self._receive(out)
        if self._sent is None:
            raise AtariError("recv would wait for ever: no step has been sent; call send first")
        if out is not None:
            self._target(out)  # A wrong one does not use up the step.
        actions, self._sent = self._sent, None
        return self._step_all(actions, out)

    def _receive(self, out: Arrays | None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, ram, audio, final_obs = self._target(out), self._ram(), self._audio(), self._final()
        stepped: _Stepped = self._native.recv(obs, final_obs, ram, audio)
        if self.render_mode == "human":
            self._show()
        return self._results(obs, *stepped, final_obs, ram, audio)

    # ------------------------------------------------------------------ states

    def plain_state(self) -> tuple[Any, tuple[str, ...]]:
        """Consoles and generators as plain data, for ``parl.envs.snapshot``."""
        self._check_idle()
        state = {
            "states": self._take_states(list(range(self.num_envs))),
            "last_batch": self._last_batch(),
            "variations": [one.settings for one in self._variations],
        }
        kept = "_np_random", "_np_random_seed", "single_action_space", "action_space"
        return state, (*kept, *self._added())

    def _added(self) -> dict[str, Any]:
        """The attributes that a subclass or a caller has added."""
        return {name: value for name, value in self.__dict__.items() if name not in self._own}

    def set_plain_state(self, state: Any) -> None:
        """Restores what :meth:`plain_state` returned."""
        if "variations" in state:
            self._vary([Variation.of_settings(one) for one in state["variations"]])
        self._put_states(state["states"], list(range(self.num_envs)))
        self._set_last_batch(state["last_batch"])

    def _check_idle(self) -> None:
        self._check_open()
        if self._sent is not None:
            raise AtariError("environment 0 is still at work: call recv first")

    def __getstate__(self) -> dict[str, Any]:
        self._check_idle()
        return {
            "arguments": self._arguments,
            "states": self._take_states(list(range(self.num_envs))),
            "last_batch": self._last_batch(),
            "preset": self._preset,
            "variations": self._variations,
            "spec": self.spec,
            "np_random": (self._np_random, self._np_random_seed),
            "spaces": (self.single_action_space, self.action_space),
            "added": self._added(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        AtariVectorEnv.__init__(self, **state["arguments"])
        self._vary(state["variations"])
        self._put_states(state["states"], list(range(self.num_envs)))
        self._set_last_batch(state["last_batch"])
        self._preset = state["preset"]
        self.spec = state["spec"]
        self._np_random, self._np_random_seed = state["np_random"]
        self.single_action_space, self.action_space = state["spaces"]
        self.__dict__.update(state.get("added", {}))

    # ------------------------------------------------------------------ images

    def render(self) -> Any:
        """Screens of the consoles, in color and at the native size.

        Returns:
            ``"rgb_array"``: a tuple of (H, 160, 3) uint8 arrays, one per environment; ``"rgb_grid"``: one
            array (grid rows * H, grid columns * 160, 3), row by row with environment 0 at the top left;
            ``"human"``: None, a window shows the grid.

        Raises:
            AtariError: the environments were made without ``render_mode``, or have not been reset.
        """
        self._check_open()
        if self.render_mode is None:
            raise AtariError(
                f"render_mode is None, expected one of {RENDER_MODES}: pass it when making the environments"
            )
        if self.render_mode == "human":
            return self._show()
        pictures = self._pictures()
        return pictures if self.render_mode == "rgb_array" else grid(pictures)

    def _pictures(self) -> tuple[Arrays, ...]:
        return tuple(self._native.picture(i) for i in range(self.num_envs))

    def _show(self) -> None:
        if self._window is None:
            self._window = Window(", ".join(self.games))
        self._window.show(grid(self._pictures()))

    # ------------------------------------------------------------------ closing

    def close_extras(self, **kwargs: Any) -> None:
        """Stops the threads and frees the environments; a second call does nothing."""
        del kwargs
        self._native.close()
        if self._window is not None:
            self._window.close()
            self._window = None

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self._native.close()
            self.closed = True

    def __repr__(self) -> str:
        return f"AtariVectorEnv({', '.join(self.games)}, num_envs={self.num_envs})"

    # ------------------------------------------------------------------ arrays

    def _target(self, out: Arrays | None) -> Arrays:
        if out is not None:
            shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", None)
            if shape != self._out_shape or dtype != np.uint8:
                raise AtariError(
                    f"out is {dtype} of shape {shape}, expected a uint8 array of shape {self._out_shape}"
                )
            if not (out.flags.c_contiguous and out.flags.writeable):
                raise AtariError("out is not C-contiguous and writable")
            return out
        for i in range(len(self._buffers)):
            # The caller no longer holds it.
            if is_unshared(self._buffers, i):
                return self._buffers[i]
        array = np.empty(self._out_shape, np.uint8)
        if len(self._buffers) < _BUFFERS:
            self._buffers.append(array)
        return array

    def _final(self) -> Arrays | None:
        return np.zeros(self._out_shape, np.uint8) if self._autoreset is AutoresetMode.SAME_STEP else None

    def _ram(self) -> Arrays | None:
        return np.empty((self.batch_size, 128), np.uint8) if self._ram_info else None

    def _audio(self) -> Arrays | None:
        return np.empty((self.batch_size, self._native.audio_bytes), np.uint8) if self._sound else None

    def _actions(self, actions: Any, count: int) -> Arrays:
        array = self._action_array(actions)
        if not self._continuous and array.shape != (count, *self._action_shape):
            raise AtariError(f"actions have shape {array.shape}, expected {(count, *self._action_shape)}")
        return array

    def _results(
        self,
        obs: Arrays,
        numbers: Arrays,
        flags: Arrays,
        any_ended: bool,
        final_obs: Arrays | None,
        ram: Arrays | None,
        audio: Arrays | None,
    ) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        rewards = step_results.of_players(numbers, step_results.REWARD, self.players)
        if self._reward_dtype != np.int32:
            rewards = rewards.astype(self._reward_dtype)
        infos = step_results.infos_of(numbers, step_results.all_true(numbers), ram, audio)
        if self._clips:
            raw = step_results.of_players(numbers, step_results.RAW_REWARD, self.players)
            infos["raw_reward"], infos["_raw_reward"] = raw, infos["_env_id"]
        if any_ended:
            final = None if final_obs is None else self._out(final_obs)
            returns = step_results.of_players(numbers, step_results.EPISODE_RETURN, self.players)
            step_results.add_ends(infos, returns, numbers, flags, final)
        if self._game_continues:
            step_results.add_game(infos, numbers, flags, any_ended)
        ends, cuts = flags[step_results.TERMINATED], flags[step_results.TRUNCATED]
        if self._torch is not None:
            obs, rewards, ends, cuts = map(self._torch, (obs, rewards, ends, cuts))
        return obs, rewards, ends, cuts, infos


def _action_space(num_actions: int, continuous: bool, players: int) -> spaces.Space[Any]:
    if continuous:
        low, high = np.array([[0.0, -np.pi, 0.0], [1.0, np.pi, 1.0]], np.float32)
        if players == 2:
            low, high = np.tile(low, (2, 1)), np.tile(high, (2, 1))
        return spaces.Box(low, high, dtype=np.float32)
    return spaces.Discrete(num_actions) if players == 1 else spaces.MultiDiscrete([num_actions] * 2)


@show_options(AtariOptions)
def make_vec(
    game: str | Sequence[str], num_envs: int = 1, *, preset: str = "ale", **options: Unpack[AtariOptions]
) -> AtariVectorEnv:
    """:class:`AtariVectorEnv` with the settings of a preset. For other environments: ``gymnasium.make_vec``.

    Args:
        game: one game or several.
        num_envs: N.
        preset: ``"ale"`` (``ale_py.AtariVectorEnv``), ``"gymnasium"`` (``AtariEnv`` with
            ``AtariPreprocessing`` and ``FrameStackObservation``), ``"envpool"``, ``"nature"`` (DQN, 2015),
            ``"machado"`` (2018) or ``"raw"`` (every frame, as the console shows it);
            :data:`parl.envs.atari.presets.PRESETS` lists what each one sets.
        **options: keywords of :class:`AtariVectorEnv`, which override those of the preset.

    Raises:
        ConfigError: there is no such preset.
        AtariError: and further errors, as :class:`AtariVectorEnv`.
    """
    chosen: dict[str, Any] = {**preset_options(preset), **options}
    envs = AtariVectorEnv(game, num_envs, **chosen)
    envs._preset = preset
    return envs


def _torch() -> Callable[[Arrays], Any]:
    import torch

    return torch.from_numpy
