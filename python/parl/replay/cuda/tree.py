"""The sum tree on a CUDA device: :class:`parl.SumTree` with ``device="cuda"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parl.errors import InconsistentError, NotSampleableError
from parl.replay.cuda import layout, structs, tree_modes
from parl.replay.cuda.device import Arena, CudaDevice
from parl.replay.cuda.structs import LANES, SIZES, WORDS, Mode, Word

if TYPE_CHECKING:
    from torch import Tensor

# Of one call.
DRAWS_MAX = 2**24
_MODES = {"stratified": Mode.STRATIFIED, "independent": Mode.INDEPENDENT, "systematic": Mode.SYSTEMATIC}


def draws(count: int, mode: str, rank: int, learners: int) -> structs.Draws:
    """Checks the number and mode of draws and converts them for the kernels.

    Raises:
        ValueError: the number, the mode or the rank is invalid.
    """
    if not 0 <= count <= DRAWS_MAX:
        raise ValueError(f'{count} draws, expected 0 to {DRAWS_MAX} (device="cuda")')
    if mode == "split":
        if not 0 <= rank < learners:
            raise ValueError(f"rank is {rank}, expected 0 to {learners - 1} with {learners} learners")
        return structs.Draws(Mode.STRATIFIED, count, rank, learners)
    if mode not in _MODES:
        names = ", ".join([*_MODES, "split", *tree_modes.MODES])
        raise ValueError(f'mode is {mode!r}, expected one of {names} with device="cuda"')
    return structs.Draws(_MODES[mode], count, 0, 1)


class TreeMemory:
    """The memory of a tree: sums, words (counters and generator), stamps of updates.

    Args:
        cuda: the device.
        capacity: number of leaves.
        units: units per priority 1.
        is_chained: whether the seed of each call comes from a generator, and not from the number of the call.
        arena: the allocation, to which the arrays of the tree are added.
    """

    def __init__(
        self, cuda: CudaDevice, capacity: int, units: float, *, is_chained: bool, arena: Arena
    ) -> None:
        self.cuda, self.capacity, self.units, self.arena = cuda, capacity, units, arena
        self.levels = layout.levels(capacity)
        for i, entries in enumerate(self.levels):
            arena.add(f"level{i}", entries, 8 if i else 4)
        arena.add("words", WORDS, 8)
        arena.add("stamps", self.levels[0], 4)
        arena.allocate(cuda)
        self.words: Tensor = arena.view("words", "int64")
        self.plan = structs.Tree(
            words=arena.address("words"),
            stamps=arena.address("stamps"),
            units=units,
            depth=len(self.levels),
            capacity=capacity,
            is_chained=int(is_chained),
        )
        for i in range(len(self.levels)):
            self.plan.levels[i] = arena.address(f"level{i}")

    def level(self, i: int) -> Tensor:
        """The sums of level ``i``; for level 0 the weights of the leaves."""
        return self.arena.view(f"level{i}", "int64" if i else "int32")

    def word(self, which: Word) -> int:
        """The value of a word; synchronizes."""
        return int(self.words[which].item())

    def set_words(self, first: int, values: list[int]) -> None:
        """Writes words from unsigned 64-bit numbers."""
        signed = np.array(values, np.uint64).view(np.int64)
        self.words[first : first + len(values)].copy_(self.cuda.torch.from_numpy(signed))

    def get_words(self, first: int, count: int) -> list[int]:
        """Words as unsigned 64-bit numbers; synchronizes."""
        return self.words[first : first + count].cpu().numpy().view(np.uint64).tolist()

    def total(self) -> float:
        """Sum of all priorities; synchronizes."""
        return int(self.level(len(self.levels) - 1).sum().item()) / self.units

    def histogram(self) -> Any:
        """(33,) uint64: number of leaves by the significant bits of their weights; synchronizes."""
        found = np.array(self.get_words(Word.HISTOGRAM, SIZES), np.uint64)
        found[0] = self.capacity - int(found[1:].sum())
        return found

    def verify(self) -> None:
        """Checks every sum against the sums below it; synchronizes.

        Raises:
            InconsistentError: names the first node that differs.
        """
        for i in range(1, len(self.levels)):
            below = self.level(i - 1).long().reshape(-1, LANES).sum(1)
            stored = self.level(i)
            expected = stored.new_zeros(stored.shape)
            expected[: len(below)] = below
            wrong = (stored != expected).nonzero()
            if len(wrong):
                node = int(wrong[0].item())
                raise InconsistentError(
                    f"node {node} of level {i} is {int(stored[node])}, its children sum to "
                    f"{int(expected[node])}"
                )

    def rebuild_sums(self) -> None:
        """Computes all sums from the leaves."""
        for i in range(1, len(self.levels)):
            below = self.level(i - 1).long().reshape(-1, LANES).sum(1)
            stored = self.level(i)
            stored.zero_()
            stored[: len(below)] = below

    def raise_errors(self, *kinds: tuple[Word, type[Exception], str]) -> None:
        """Raises an error if kernels have counted any, and resets the counters to 0; synchronizes.

        Args:
            *kinds: a counter, the class of its error, and what the message says after the count.

        Raises:
            Exception: of the class of the first kind that has occurred; the message names all of them.
        """
        counts = [self.word(which) for which, _, _ in kinds]
        found = [(count, *kind) for count, kind in zip(counts, kinds, strict=True) if count]
        for _, which, _, _ in found:
            self.words[which] = 0
        if found:
            raise found[0][2]("; ".join(f"{count} {text}" for count, _, _, text in found))


class CudaSumTree:
    """:class:`parl.SumTree` on a CUDA device; ``SumTree(capacity, device="cuda")`` makes one.

    Indices and priorities are CUDA tensors; other values are copied to the device. ``update``, ``sample`` and
    ``find`` enqueue kernels on torch's current stream and do not synchronize, so that they can be captured in
    a CUDA graph; the generator is on the device. Equal seeds and updates give the draws of
    ``SumTree(capacity, fan_out=32)``.

    - The fan-out is 32, because a warp reads a node.
    - Invalid indices and priorities are ignored and counted. :meth:`check` raises an error for them, and for
      draws from an empty tree, which return index 0 and priority 0.
    - The modes ``"without_replacement"``, ``"uniform"`` and ``"eviction"`` and mixtures have the
      distributions of the CPU but other random numbers. They and ``"largest"`` read every leaf.
    """

    def __init__(self, capacity: int, scale: float = 65536.0, seed: int = 0, *, device: str = "cuda") -> None:
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale {scale} is not a finite number above 0")
        self._cuda = self._device_of(device)
        self._memory = TreeMemory(self._cuda, int(capacity), float(scale), is_chained=True, arena=Arena())
        self.seed(seed)

    @classmethod
    def _device_of(cls, device: str) -> CudaDevice:
        return CudaDevice(device)

    # ------------------------------------------------------------ updates and sampling

    def update(self, indices: Any, priorities: Any) -> None:
        """Sets priorities; for equal indices the last one counts. Does not synchronize.

        Args:
            indices: (n,) integers in ``0..capacity``.
            priorities: (n,) float32 or float64, or one number for all indices.

        Raises:
            ValueError: the lengths differ.
        """
        at = self._cuda.to_device(indices, "int64").reshape(-1)
        given, reals = floats_of(self._cuda, priorities, len(at), "priorities")
        if len(at) == 0:
            return
        call = structs.TreeUpdate(at.data_ptr(), reals, len(at))
        for kernel in ("parl_tree_stamp", "parl_tree_scatter"):
            self._cuda.launch(kernel, layout.blocks(len(at)), layout.THREADS, self._memory.plan, call)
        del given

    def sample(
        self, n: int, *, mode: str = "stratified", rank: int = 0, learners: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Samples leaves with probability proportional to their priorities. Does not synchronize.

        Args:
            n: number of leaves to sample.
            mode: ``"stratified"``, ``"independent"``, ``"systematic"`` or ``"split"``; or one of the modes
                that read every leaf: ``"without_replacement"``, ``"uniform"``, ``"largest"``, ``"eviction"``.
            rank: number of this caller, for ``"split"``.
            learners: number of callers, for ``"split"``.

        Returns:
            (n,) int64 indices and (n,) float64 priorities at the time of sampling.

        Raises:
            ValueError: there is no such mode, or ``n`` distinct leaves are more than the tree has.
        """
        if mode in tree_modes.MODES:
            draws(n, "independent", rank, learners)
            indices, weights = tree_modes.select(self._memory, self._seed(), n, mode)
            return self._finish(indices, weights)
        chosen = draws(n, mode, rank, learners)
        indices, priorities = self._cuda.empty((n,), "int64"), self._cuda.empty((n,), "float64")
        call = structs.TreeSample(chosen, indices.data_ptr(), priorities.data_ptr())
        blocks = max(-(-n // layout.DRAWS_PER_BLOCK), 1)
        self._cuda.launch("parl_tree_sample", blocks, layout.SAMPLE_THREADS, self._memory.plan, call)
        return indices, priorities

    def sample_mixture(
        self,
        n: int,
        *,
        uniform: float = 0.0,
        newest: float = 0.0,
        newest_from: int = 0,
        newest_count: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As :meth:`parl.SumTree.sample_mixture`; reads every leaf. Does not synchronize.

        Args:
            n: number of leaves to sample.
            uniform: share drawn uniformly from all leaves with a positive priority.
            newest: share drawn uniformly from the newest leaves with a positive priority.
            newest_from: the oldest of the newest leaves.
            newest_count: number of newest leaves; they continue at leaf 0 after the last leaf.

        Returns:
            (n,) int64 indices, (n,) float64 priorities, and (n,) float64 probabilities that one draw of the
            mixture yields the leaf.

        Raises:
            ValueError: a share is negative, their sum is above 1, or the newest leaves are out of bounds.
        """
        draws(n, "independent", 0, 1)
        if not (0 <= uniform <= 1 and 0 <= newest <= 1 and uniform + newest <= 1):
            raise ValueError(
                f"uniform is {uniform} and newest {newest}, expected shares of at least 0 with a sum of at "
                "most 1"
            )
        if newest > 0 and not (0 <= newest_from < self.capacity and 0 < newest_count <= self.capacity):
            raise ValueError(
                f"newest_from is {newest_from} and newest_count {newest_count}, expected leaves of "
                f"0 to {self.capacity}"
            )
        window = newest_from, newest_count if newest > 0 else 0
        found = tree_modes.mixture(self._memory, self._seed(), n, (uniform, newest), window)
        return *self._finish(*found[:2]), found[2]

    def _seed(self) -> Tensor:
        """A word of the generator's state as the seed of a call's random numbers; () int64 on the device."""
        return self._memory.words[Word.GENERATOR].clone()

    def _finish(self, indices: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Result of a call that sampled these leaves; advances the generator by one call."""
        tree_modes.count_empty(self._memory, weights)
        # Sampling no leaves advances the generator.
        self.sample(0)
        torch = self._cuda.torch
        return torch.where(weights > 0, indices, 0), weights.double() / self.scale

    def find(self, prefix_sums: Any, *, total: float | None = None) -> Tensor:
        """Finds the leaves that contain prefix sums. Does not synchronize.

        Args:
            prefix_sums: (n,) float, at least 0 and below the total.
            total: the total that the prefix sums were computed from; None for the current one.

        Returns:
            (n,) int64 leaves; -1 for prefix sums outside the tree, for which :meth:`check` raises an error.
        """
        asked = self._cuda.to_device(prefix_sums, "float64").reshape(-1)
        indices = self._cuda.empty((len(asked),), "int64")
        if len(asked):
            of = -1.0 if total is None else float(total)
            call = structs.TreeFind(asked.data_ptr(), indices.data_ptr(), of, len(asked))
            blocks = layout.blocks(len(asked) * LANES)
            self._cuda.launch("parl_tree_find", blocks, layout.THREADS, self._memory.plan, call)
        return indices

    def check(self) -> None:
        """Synchronizes, and raises an error for invalid values seen on the device since the last check.

        If there are errors of several kinds, the class is that of the first kind below, and the message names
        all of them.

        Raises:
            ValueError: priorities were negative, infinite or NaN.
            IndexError: indices or prefix sums were out of their bounds.
            NotSampleableError: leaves were sampled from an empty tree.
        """
        self._memory.raise_errors(
            (Word.BAD_PRIORITY, ValueError, "priorities were not finite numbers >= 0 and were ignored"),
            (Word.BAD_INDEX, IndexError, "indices or prefix sums were outside the tree and were ignored"),
            (Word.EMPTY, NotSampleableError, "calls sampled from a tree in which every priority is 0"),
        )

    def __getitem__(self, index: Any) -> Any:
        """The priority of one leaf as a float, which synchronizes, or of many as a (n,) float64 tensor."""
        leaves = self._memory.level(0)
        if isinstance(index, int):
            return int(leaves[self._leaf(index)].item()) / self.scale
        return leaves[self._cuda.to_device(index, "int64")].double() / self.scale

    def __setitem__(self, index: Any, value: Any) -> None:
        """Sets the priorities of one leaf or of many; see :meth:`update`."""
        self.update([self._leaf(index)] if isinstance(index, int) else index, value)

    def _leaf(self, index: int) -> int:
        if not -self.capacity <= index < self.capacity:
            raise IndexError(f"leaf {index} is outside -{self.capacity} to {self.capacity - 1}")
        return index % self.capacity

    # ------------------------------------------------------------ properties

    @property
    def device(self) -> Any:
        """The torch device of the tree."""
        return self._cuda.device

    @property
    def capacity(self) -> int:
        """Number of leaves."""
        return self._memory.capacity

    @property
    def fan_out(self) -> int:
        """Number of children per node: 32."""
        return LANES

    @property
    def scale(self) -> float:
        """Units per priority 1, in which priorities are stored as integers."""
        return self._memory.units

    @property
    def max_priority(self) -> float:
        """The largest priority that can be stored; larger ones are stored as this value."""
        return structs.MAX_WEIGHT / self.scale

    @property
    def total(self) -> float:
        """Sum of all priorities; synchronizes, as the properties below."""
        return self._memory.total()

    @property
    def saturated(self) -> int:
        """Number of priorities that were stored as :attr:`max_priority` because they were larger."""
        return self._memory.word(Word.SATURATED)

    @property
    def largest(self) -> float:
        """The largest priority ever stored."""
        return self._memory.word(Word.LARGEST_EVER) / self.scale

    @property
    def positive(self) -> int:
        """Number of leaves with a priority above 0."""
        return self.capacity - int(self.histogram()[0])

    @property
    def restarts(self) -> int:
        """Number of descents that were repeated: 0, because kernels run one after the other."""
        return 0

    @property
    def nbytes(self) -> int:
        """Size of the device memory in bytes."""
        return self._memory.arena.bytes

    def histogram(self) -> Any:
        """(33,) uint64: number of leaves by the significant bits of their weights."""
        return self._memory.histogram()

    def verify(self) -> None:
        """Checks every sum; raises InconsistentError if one differs from the sum of its leaves."""
        self._memory.verify()

    def seed(self, seed: int) -> None:
        """Sets the generator to the state of a new tree with this seed."""
        self._memory.set_words(Word.GENERATOR, [seed])

    @property
    def rng_state(self) -> int:
        """State of the random generator, 0..2**64, as of :class:`parl.SumTree`."""
        return self._memory.get_words(Word.GENERATOR, 1)[0]

    @rng_state.setter
    def rng_state(self, state: int) -> None:
        if not 0 <= state < 2**64:
            raise OverflowError(f"rng_state is {state}, expected 0 to 2**64 - 1")
        self._memory.set_words(Word.GENERATOR, [state])

    def __delitem__(self, index: Any) -> None:
        """Sets priorities to 0."""
        self[index] = 0.0

    def __len__(self) -> int:
        return self.capacity

    def __repr__(self) -> str:
        return f"SumTree(capacity={self.capacity}, fan_out={LANES}, device={str(self.device)!r})"


def floats_of(cuda: CudaDevice, value: Any, count: int, name: str) -> tuple[Tensor, structs.Reals]:
    """Converts numbers for the kernels.

    Args:
        cuda: the device.
        value: (count,) float32 or float64, other numbers, or one number for all.
        count: expected length.
        name: noun for the message.

    Returns:
        The tensor on the device, which the caller keeps alive, and its description for the kernels.

    Raises:
        ValueError: the length differs.
    """
    torch = cuda.torch
    tensor = cuda.numbers(value)
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float64 if tensor.dtype == torch.int64 else torch.float32)
    tensor = tensor.contiguous()
    is_scalar = tensor.ndim == 0
    if not is_scalar and tuple(tensor.shape) != (count,):
        raise ValueError(f"{name} have shape {tuple(tensor.shape)}, expected ({count},)")
    is_double = tensor.dtype == torch.float64
    return tensor, structs.Reals(tensor.data_ptr(), int(is_double), int(is_scalar))
