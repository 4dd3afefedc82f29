"""The compiled extension of parl. ``SumTree`` is public; ``parl.replay`` and ``parl.atari`` wrap the rest."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, SupportsIndex, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "AtariBatch",
    "AtariRows",
    "Console",
    "Conversion",
    "CudaAtariBatch",
    "CudaProgram",
    "Dense",
    "GameRow",
    "Replay",
    "Rom",
    "SumTree",
    "__version__",
    "all_finite",
    "console_bytes",
    "cuda_compile",
    "cuda_prepare",
    "cuda_report",
    "dense_adam",
    "game_rows",
    "memory_fence",
    "xla_targets",
]

__version__: str

_Mode = Literal[
    "stratified",
    "independent",
    "systematic",
    "without_replacement",
    "split",
    "uniform",
    "largest",
    "eviction",
]

@final
class SumTree:
    """Sum tree over the priorities of ``capacity`` leaves. Threads can share it; reads never wait.

    Priorities are stored as integers, ``round(priority * scale)``, so that sums are exact in any order of
    updates. A positive priority never becomes 0. A priority beyond :attr:`max_priority` is stored as that
    value and counted.

    Args:
        capacity: number of leaves, ``1..=2**32``.
        fan_out: children per node: 4, 8, 16, 32 or 64.
        scale: integer units per unit of priority.
        seed: seed of the draws.
        device: ``"cpu"``, or ``"cuda"`` or ``"cuda:<number>"`` for a tree in device memory, with fan-out 32
            and with tensors as arguments and results: :class:`parl.replay.cuda.tree.CudaSumTree`.

    Raises:
        ValueError: an argument is out of its bounds.
        MemoryError: there is not enough memory.
        CudaUnavailableError: there is no such device; the message says why.

    Source: Zhang, Kuppannagari, Prasanna (2021), "Parallel Actors and Learners".
    """

    def __new__(
        cls,
        capacity: int,
        fan_out: int = 16,
        scale: float = 65536.0,
        seed: int = 0,
        *,
        device: str = "cpu",
    ) -> SumTree: ...
    def update(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        """Sets priorities. The last one counts if an index is repeated. Stores nothing on an error.

        Args:
            indices: (n,) integers in ``0..capacity``; int64 is read in place.
            priorities: (n,) float, or one number for all; float32 and float64 are read in place.

        Raises:
            IndexError: an index is outside the tree.
            ValueError: a priority is negative, infinite or NaN, or the lengths differ.
        """

    def sample(
        self, n: int, *, mode: _Mode = "stratified", rank: int = 0, learners: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draws ``n`` leaves, by default with probability proportional to their priorities.

        Args:
            n: number of draws.
            mode: ``"stratified"``, ``"independent"``, ``"systematic"``, ``"without_replacement"`` or
                ``"split"`` (the strata of ``rank`` among ``learners``) draw by priority; ``"uniform"`` draws
                uniformly among leaves with a priority above 0; ``"largest"`` returns the ``n`` largest
                priorities, in order; ``"eviction"`` draws distinct leaves to evict, with probability
                proportional to 1 / priority. The last two read every leaf.
            rank: index of this caller, for ``"split"``.
            learners: number of callers, for ``"split"``.

        Returns:
            (n,) int64 indices and (n,) float64 priorities, as read by the draws.

        Raises:
            NotSampleableError: every priority is 0, or ``"without_replacement"`` draws too many.
        """

    def sample_mixture(
        self,
        n: int,
        *,
        uniform: float = 0.0,
        newest: float = 0.0,
        newest_from: int = 0,
        newest_count: int = 0,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Draws ``n`` leaves: a share uniformly, a share from the newest leaves, the rest by priority.

        Args:
            n: number of draws.
            uniform: share drawn uniformly among all leaves with a priority above 0.
            newest: share drawn uniformly among the newest leaves with a priority above 0.
            newest_from: the oldest of the newest leaves.
            newest_count: number of newest leaves; after the last leaf they continue at leaf 0.

        Returns:
            (n,) int64 indices, (n,) float64 priorities, and (n,) float64 probabilities of each leaf in one
            draw of the mixture, for importance weights.

        Raises:
            ValueError: a share is below 0, the shares sum to more than 1, or there are no newest leaves.
            NotSampleableError: all leaves to draw from have priority 0.
        """

    def find(self, prefix_sums: ArrayLike, *, total: float | None = None) -> NDArray[np.int64]:
        """Finds the leaf of each prefix sum, (n,) int64: the first leaf whose running sum is larger.

        Args:
            prefix_sums: (n,) float, below the total as read by this call. While other threads update the
                tree, that may be smaller than the total they were computed from; pass that as ``total`` then.
            total: the total that the prefix sums were computed from and are below; they are scaled to the
                current total.

        Raises:
            ValueError: a prefix sum is outside ``0..total``.
        """

    @property
    def total(self) -> float:
        """Sum of all priorities."""

    @property
    def capacity(self) -> int:
        """Number of leaves."""

    @property
    def fan_out(self) -> int:
        """Children per node."""

    @property
    def scale(self) -> float:
        """Integer units per unit of priority."""

    @property
    def max_priority(self) -> float:
        """The largest priority that can be stored."""

    @property
    def saturated(self) -> int:
        """Number of priorities so far that were beyond :attr:`max_priority`."""

    @property
    def largest(self) -> float:
        """The largest priority ever stored."""

    @property
    def positive(self) -> int:
        """Number of leaves with a priority above 0."""

    @property
    def restarts(self) -> int:
        """Number of restarted draws: a writer had emptied a node on their path."""

    def histogram(self) -> NDArray[np.uint64]:
        """Number of leaves by the size of their priority. Can be read at any time without stopping writers.

        Returns:
            (33,) uint64: entry 0 counts zeros, entry k those with ``2**(k-1) <= priority * scale < 2**k``.
        """

    def verify(self) -> None:
        """Checks that every sum is exact. Meaningful only while no update is running.

        Raises:
            InconsistentError: a sum is not exact; the message names the first node.
        """

    def seed(self, seed: int) -> None:
        """Sets the random generator to the state of a new tree with this seed."""

    @property
    def rng_state(self) -> int:
        """State of the random generator, 0..2**64, as for :meth:`seed`."""

    @rng_state.setter
    def rng_state(self, value: int) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> float: ...
    @overload
    def __getitem__(self, key: Sequence[int] | NDArray[np.integer[Any]], /) -> NDArray[np.float64]: ...
    def __setitem__(self, key: ArrayLike, value: ArrayLike, /) -> None: ...
    def __delitem__(self, key: ArrayLike, /) -> None: ...

@final
class Replay:
    """Rows of bytes with their windows and priorities; ``parl.replay`` adds names and types."""

    def __new__(
        cls,
        capacity: int,
        fields: Sequence[tuple[str, str, Sequence[int], int, int]],
        *,
        alpha: float,
        n_step: int,
        gamma: float,
        epsilon: float,
        fan_out: int,
        num_envs: int,
        autoreset: str,
        weight_norm: str,
        seed: int,
        shared: str | None,
        stack_padding: str,
        sequence: tuple[int, int, float] | None,
        hindsight: tuple[str, float, str] | None,
        compression: str,
        path: str | PathLike[str] | None,
    ) -> Replay: ...
    @staticmethod
    def attach(name: str) -> Replay: ...
    @staticmethod
    def open(path: str | PathLike[str]) -> Replay: ...
    def flush(self) -> None: ...
    @property
    def path(self) -> str | None: ...
    @staticmethod
    def load(path: str | PathLike[str], shared: str | None, capacity: int | None) -> Replay: ...
    def save(self, path: str | PathLike[str]) -> None: ...
    def save_parts(
        self, path: str | PathLike[str], capacity: int, used: int, parts: Iterable[NDArray[Any]]
    ) -> None: ...
    def add(
        self,
        columns: Sequence[NDArray[Any]],
        rows: int,
        env_id: ArrayLike | None,
        priorities: ArrayLike | None,
        final_present: NDArray[np.bool_] | None,
        final_columns: Sequence[NDArray[Any]],
    ) -> NDArray[np.uint64]: ...
    def add_plain(
        self,
        columns: Mapping[str, Any],
        env_id: ArrayLike | None,
        priorities: ArrayLike | None,
    ) -> NDArray[np.uint64] | None: ...
    def cut(self, env_id: ArrayLike) -> None: ...
    def sample(
        self,
        fields: Sequence[NDArray[Any]],
        discounts: NDArray[np.float32],
        indices: NDArray[np.int64],
        weights: NDArray[np.float32],
        tickets: NDArray[np.uint64],
        beta: float,
        mode: str,
        rank: int,
        learners: int,
        uniform: float,
        newest: float,
        newest_rows: int,
    ) -> None: ...
    def update(self, tickets: ArrayLike, priorities: ArrayLike) -> int: ...
    def evict(self, count: int) -> int: ...
    def verify(self) -> None: ...
    def close(self) -> None: ...
    def unlink(self) -> None: ...
    def settings(self) -> dict[str, Any]: ...
    def outputs(self) -> list[tuple[str, str, list[int], int]]: ...
    def final_fields(self) -> list[str]: ...
    def counters(self) -> dict[str, int]: ...
    def histogram(self) -> NDArray[np.uint64]: ...
    @property
    def ticket_tag(self) -> int:
        """The bits by which tickets of this replay differ from ``slot | lap << 32``.

        Random in each new replay. Replays with the same tag and the same rows have the same tickets.
        """

    @ticket_tag.setter
    def ticket_tag(self, value: int) -> None: ...
    @property
    def largest(self) -> float: ...
    @property
    def has_discounts(self) -> bool: ...
    @property
    def sampleable(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def total(self) -> float: ...
    @property
    def shared(self) -> str | None: ...
    @property
    def rng_state(self) -> list[int]: ...
    @rng_state.setter
    def rng_state(self, value: Sequence[int]) -> None: ...
    def __len__(self) -> int: ...

@final
class Conversion:
    """Conversion of a replay to one with another form of a field."""

    def __new__(cls, replay: Replay, field: tuple[str, str, Sequence[int], int, int]) -> Conversion: ...
    @property
    def left(self) -> int: ...
    def restart(self) -> None: ...
    def read(self, stacks: NDArray[Any], numbers: NDArray[np.uint64]) -> int: ...
    def write(self, numbers: NDArray[np.uint64], rows: NDArray[Any]) -> None: ...
    def finish(self) -> Replay: ...

@final
class Dense:
    """A network of dense layers with ReLU, and heads on the last layer. Passes run in one thread.

    Args:
        hidden: for each layer its weight (width, inputs), its bias (width,) and, for training, the arrays of
            the same shapes that their gradients are added to; all float32 and C-contiguous. The arrays are
            kept by reference and read at each call.
        heads: as ``hidden``; each head reads the features of the last layer, without ReLU.
        transposed: weights and their gradients are stored as (inputs, width).

    Raises:
        ValueError: there is no layer or head, an array does not fit or overlaps with another.
    """

    def __new__(
        cls,
        hidden: Sequence[
            tuple[
                NDArray[np.float32],
                NDArray[np.float32],
                NDArray[np.float32] | None,
                NDArray[np.float32] | None,
            ]
        ],
        heads: Sequence[
            tuple[
                NDArray[np.float32],
                NDArray[np.float32],
                NDArray[np.float32] | None,
                NDArray[np.float32] | None,
            ]
        ],
        transposed: bool = False,
    ) -> Dense: ...
    def forward(
        self, x: NDArray[np.float32], outputs: Sequence[NDArray[np.float32]], keep_for_backward: bool
    ) -> None:
        """Computes the outputs of the heads for ``x``, (B, inputs), into ``outputs``, (B, width) each.

        Args:
            x: float32, C-contiguous.
            outputs: one array per head.
            keep_for_backward: :meth:`backward` may follow; passes that are not kept do not affect it.

        Raises:
            ValueError: an array does not fit, or overlaps with another.
        """

    def backward(self, x: NDArray[np.float32], of_outputs: Sequence[NDArray[np.float32]]) -> None:
        """Adds the gradients of all weights and biases to the arrays given for them.

        Args:
            x: inputs of the latest kept pass.
            of_outputs: gradients of its outputs, (B, width) each.

        Raises:
            ValueError: no arrays for gradients were given, an array does not fit or overlaps with another.
        """

    def backward_to_inputs(
        self, first: int, of_outputs: Sequence[NDArray[np.float32]], of_inputs: NDArray[np.float32]
    ) -> None:
        """Writes the gradients of the inputs from index ``first`` on. Needs no gradients of weights.

        Args:
            first: index of an input.
            of_outputs: gradients of the outputs of the latest kept pass, (B, width) each; rows that are 0 in
                all of them are skipped.
            of_inputs: (B, inputs - first), written.

        Raises:
            ValueError: ``first`` is too large, an array does not fit or overlaps with another.
        """

def all_finite(array: NDArray[Any]) -> bool:
    """Returns True if ``array``, of any shape, has no NaN or infinity. Integers and booleans are finite."""

def memory_fence() -> None:
    """Keeps the order of reads and writes before and after the call, for memory shared without locks."""

def dense_adam(
    weights: NDArray[np.float32],
    gradients: NDArray[np.float32],
    mean: NDArray[np.float32],
    square: NDArray[np.float32],
    step: int,
    learning_rate: float,
    epsilon: float,
    betas: tuple[float, float],
    max_grad_norm: float,
) -> None:
    """Performs one step of Adam in place, in one thread; see :class:`parl.ops.adam.FlatAdam`.

    Args:
        weights: (P,), updated; C-contiguous, as all arrays here.
        gradients: (P,), scaled down to the norm ``max_grad_norm`` if theirs is larger.
        mean: (P,), running mean of the gradients, updated.
        square: (P,), running mean of their squares, updated.
        step: number of this step, from 1.
        learning_rate: step size.
        epsilon: offset of the denominator.
        betas: decay of the two means.
        max_grad_norm: largest norm of the gradients; infinity disables the scaling.

    Raises:
        ValueError: the buffers differ in length, or overlap.
        NonFiniteError: ``max_grad_norm`` is finite and the norm of the gradients is not.
    """

@final
class GameRow:
    """The fixed properties of a game; ``parl.atari.Game`` adds the rest."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def md5(self) -> str: ...
    @property
    def cartridge(self) -> str: ...
    @property
    def players(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def minimal_actions(self) -> list[int]: ...
    @property
    def legal_actions(self) -> list[int]: ...
    @property
    def modes(self) -> list[int]: ...
    @property
    def two_player_modes(self) -> list[int]: ...
    @property
    def difficulties(self) -> list[int]: ...

def game_rows() -> list[GameRow]: ...

@final
class Rom:
    """A ROM image and its metadata. Pickles contain the image."""

    def __new__(cls, image: bytes, path: str) -> Rom: ...
    @staticmethod
    def find(game: str, folders: Sequence[str | PathLike[str]], allow_unknown: bool) -> Rom: ...
    @property
    def path(self) -> str: ...
    @property
    def md5(self) -> str: ...
    @property
    def game(self) -> str | None: ...
    @property
    def cartridge(self) -> str: ...
    def patched(self, patches: Sequence[tuple[int | None, int, int]]) -> Rom: ...
    def __getnewargs__(self) -> tuple[bytes, str]: ...

@final
class Console:
    """One Atari 2600; ``parl.atari.Console`` names and checks arguments and results."""

    def __new__(
        cls,
        rom: Rom,
        *,
        rules: str | None,
        seed: int,
        system_seed: int,
        frame_skip: int,
        repeat_action_probability: float,
        max_num_frames_per_episode: int,
        truncate_on_life_loss: bool,
        sound: bool = False,
    ) -> Console: ...
    def clone(self, seed: int | None = None) -> Console: ...
    def reset(self) -> None: ...
    def act(
        self,
        action: SupportsIndex | str,
        action_b: SupportsIndex | str | None = None,
        *,
        strength: float = 1.0,
        strength_b: float = 1.0,
    ) -> int: ...
    def act_ale(self, action: SupportsIndex, paddle_strength: float = 1.0) -> int: ...
    def set_mode(self, mode: int) -> None: ...
    def set_difficulty(self, difficulty: int) -> None: ...
    def write_ram(self, index: int, value: int) -> None: ...
    def read_ram(self, out: NDArray[np.uint8] | None, /) -> NDArray[np.uint8]: ...
    def read_screen(self, out: NDArray[np.uint8] | None, /) -> NDArray[np.uint8]: ...
    def read_screen_gray(self, out: NDArray[np.uint8] | None, /) -> NDArray[np.uint8]: ...
    def read_screen_rgb(self, out: NDArray[np.uint8] | None, /) -> NDArray[np.uint8]: ...
    def read_audio(self, out: NDArray[np.uint8] | None, /) -> NDArray[np.uint8]: ...
    def draw_every_frame(self) -> None: ...
    def save(self, generator: bool, held: bool = True) -> bytes: ...
    def load(self, state: bytes, keep_repeated_action: bool) -> None: ...
    @property
    def players(self) -> int: ...
    @property
    def minimal_actions(self) -> list[int]: ...
    @property
    def legal_actions(self) -> list[int]: ...
    @property
    def modes(self) -> list[int]: ...
    @property
    def difficulties(self) -> list[int]: ...
    @property
    def mode(self) -> int: ...
    @property
    def difficulty(self) -> int: ...
    @property
    def pal(self) -> bool: ...
    @property
    def screen_height(self) -> int: ...
    @property
    def lives(self) -> int: ...
    @property
    def terminated(self) -> bool: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def game_over(self) -> bool: ...
    @property
    def frame_number(self) -> int: ...
    @property
    def episode_frame_number(self) -> int: ...

@final
class AtariBatch:
    """Environments that are stepped together; :class:`parl.AtariVectorEnv` uses it.

    ``config`` has every setting; a missing one is a ValueError or KeyError. Arrays named ``obs``,
    ``final_obs``, ``ram`` and ``audio`` (``audio_bytes`` per row) are written to: C-contiguous uint8, one
    row per result. Results are two arrays with one column per environment, and whether any episode ended.
    int32 (12, n): reward, reward before clipping, lives, frame number, episode frame number, environment;
    lives, frame number and episode frame number at the end of an episode, its return and its steps; and the
    return of the whole game; with two players (15, n), the last three are reward, reward before clipping and
    return of the second one. bool (4, n): terminated, truncated, ended, game over. Those of ``branch`` are
    int64 (4, n): reward, reward before clipping, steps, lives, and with two players (6, n) both rewards of
    the second one; bool (2, n): terminated, truncated; and states, uint8 (n, size).
    """

    def __new__(cls, config: Mapping[str, Any]) -> AtariBatch: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def obs_shape(self) -> list[int]: ...
    @property
    def actions(self) -> list[int]: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def audio_bytes(self) -> int: ...
    def reset(
        self,
        seeds: Sequence[int] | None,
        mask: Sequence[bool] | None,
        obs: NDArray[np.uint8],
        ram: NDArray[np.uint8] | None = None,
        audio: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], bool]: ...
    def assign(self, assignment: Sequence[int]) -> None: ...
    def adopt(self, other: AtariBatch) -> None: ...
    def step(
        self,
        actions: NDArray[Any],
        obs: NDArray[np.uint8],
        final_obs: NDArray[np.uint8] | None = None,
        ram: NDArray[np.uint8] | None = None,
        audio: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], bool]: ...
    def step_and_reset(
        self,
        envs: Sequence[int],
        actions: NDArray[Any],
        seeds: Sequence[int] | None,
        obs: NDArray[np.uint8],
        final_obs: NDArray[np.uint8] | None = None,
        ram: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], bool]: ...
    def play(self, env: int, actions: NDArray[Any]) -> tuple[int, bool]: ...
    def check_actions(self, actions: NDArray[Any]) -> None: ...
    def ready_envs(self) -> list[int]: ...
    def set_ready_envs(self, envs: Sequence[int]) -> None: ...
    def send(self, actions: NDArray[Any], envs: Sequence[int]) -> None: ...
    def send_reset(self, seeds: Sequence[int] | None) -> None: ...
    def recv(
        self,
        obs: NDArray[np.uint8],
        final_obs: NDArray[np.uint8] | None = None,
        ram: NDArray[np.uint8] | None = None,
        audio: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], bool]: ...
    def get_state(self, envs: Sequence[int]) -> NDArray[np.uint8]: ...
    def set_state(self, states: NDArray[np.uint8], envs: Sequence[int]) -> None: ...
    def reseed(self, envs: Sequence[int], seeds: Sequence[int]) -> None: ...
    def branch(
        self,
        states: NDArray[np.uint8],
        actions: NDArray[Any],
        branches: int,
        steps: int,
        obs: NDArray[np.uint8] | None,
        ram: NDArray[np.uint8] | None,
        seeds: Sequence[int] | None,
        saves: bool,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.uint8]]: ...
    STATE_VERSION: int
    def get_core(self, env: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]: ...
    def set_core(self, env: int, core: NDArray[np.uint8], words: NDArray[np.uint8]) -> None: ...
    def picture(self, env: int) -> NDArray[np.uint8]: ...
    def screen(self, env: int, gray: bool) -> NDArray[np.uint8]: ...
    def console_status(self, env: int) -> tuple[int, bool, bool, int, int, NDArray[np.uint8]]: ...
    def game(self, env: int) -> str: ...
    def close(self) -> None: ...

@final
class AtariRows:
    """Atari environments whose states the caller holds; :mod:`parl.jax` steps them in programs of XLA.

    ``config`` is that of :class:`AtariBatch`, with one game. ``settings`` and the MD5 of the ROM name the
    environments in programs; a process makes each only once. ``picture_bytes`` is the number of bytes of a
    state for the pictures that it keeps.

    Raises:
        AtariError: a setting is out of its bounds.
        FileNotFoundError: the ROM was not found.
    """

    def __new__(cls, config: Mapping[str, Any], settings: str, picture_bytes: int) -> AtariRows: ...
    @property
    def obs_shape(self) -> list[int]: ...
    @property
    def actions(self) -> list[int]: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def audio_bytes(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    @property
    def rom_md5(self) -> str: ...
    def close(self) -> None: ...

def xla_targets() -> list[tuple[str, object]]:
    """Names and capsules of the handlers ``parl_atari_reset`` and ``parl_atari_step``.

    They are for ``jax.ffi.register_ffi_target``.
    """

def console_bytes(states: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Console and rules of each row of environments' states: (n, S) uint8 to (n, size) uint8.

    Rows are equal where the consoles continue alike under equal actions without sticky actions. Inputs of the
    last frame, frame counters and generators are left out.

    Raises:
        AtariError: a row is no state, or damaged; names the row.
    """

_Addresses = tuple[int, int, int, int, int, int, bool]

@final
class CudaAtariBatch:
    """Environments on a CUDA device; :class:`parl.envs.atari.cuda.CudaAtariVectorEnv` uses it.

    ``config`` is that of :class:`AtariBatch`. Addresses are those of contiguous device memory, 0 for none.
    ``targets`` are those of obs, final_obs, ram, numbers and flags, then the bytes from one observation to
    the next (0: adjacent) and whether their older planes are already in place. ``reset`` and ``step`` do not
    wait for the device. Actions are int32 or, with ``wide``, int64; for continuous environments float32
    (n, 4): to the right, up, trigger, strength. A single row of states is loaded into all named environments.
    """

    def __new__(
        cls, config: Mapping[str, Any], device: int, nvrtc_folders: Sequence[str | PathLike[str]]
    ) -> CudaAtariBatch: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def obs_shape(self) -> list[int]: ...
    @property
    def actions(self) -> list[int]: ...
    @property
    def device_bytes(self) -> int: ...
    @property
    def stack_bytes(self) -> int: ...
    @property
    def from_cache(self) -> bool: ...
    def reset(self, seeds: int, mask: int, targets: _Addresses, stream: int) -> None: ...
    def assign(self, assignment: Sequence[int], stream: int) -> None: ...
    def step(self, actions: int, wide: bool, targets: _Addresses, stream: int) -> None: ...
    @property
    def calibrated(self) -> bool: ...
    def calibrate(self, stream: int) -> list[tuple[str, int, float]]: ...
    def choose(self, choices: Sequence[tuple[str, int]], stream: int) -> None: ...
    def choices(self) -> list[tuple[str, str, int]]: ...
    def check(self, stream: int) -> None: ...
    def get_state(self, envs: Sequence[int], stream: int) -> NDArray[np.uint8]: ...
    def set_state(self, states: NDArray[np.uint8], envs: Sequence[int], stream: int) -> None: ...
    def pictures(self, envs: Sequence[int], stream: int) -> list[NDArray[np.uint8]]: ...
    def game(self, env: int) -> str: ...
    def close(self) -> None: ...

def cuda_prepare(
    device: int, nvrtc_folders: Sequence[str | PathLike[str]]
) -> tuple[str, float, list[tuple[str, int, bool]]]:
    """Compiles the kernels for a device into the kernel cache. Returns the same as :func:`cuda_compile`."""

def cuda_report(nvrtc_folders: Sequence[str | PathLike[str]]) -> list[tuple[str, str]]:
    """Lists the CUDA driver, devices, NVRTC and kernel cache, as (name, value) pairs."""

@final
class CudaProgram:
    """The kernels of trees and replays on one CUDA device; :class:`parl.replay.cuda.device.Place` uses it.

    Raises:
        CudaUnavailableError: there is no such device, driver or compiler; the message says why.
    """

    def __new__(cls, device: int, nvrtc_folders: Sequence[str | PathLike[str]]) -> CudaProgram: ...
    def launch(self, kernel: str, shape: tuple[int, int], plan: bytes, call: bytes, stream: int) -> None:
        """Starts a kernel with ``shape`` (blocks, threads) and its two structs of ``crates/sumtree/kernels``.

        Does not wait for the device.
        """

    @property
    def from_cache(self) -> bool:
        """True if every kernel came from the kernel cache."""

def cuda_compile(
    architecture: int, nvrtc_folders: Sequence[str | PathLike[str]], ptx: bool, files: Sequence[str] = ...
) -> tuple[str, float, list[tuple[str, int, bool]]]:
    """Compiles kernels for an architecture such as 90: of ``files``, or all of environments.

    Needs no device.

    Returns:
        the target architecture, the seconds taken, and for each file its name, size in bytes and whether it
        came from the kernel cache.
    """
