"""The sum tree on a CUDA device: what :class:`parl.SumTree` is with ``device="cuda"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parl.errors import InconsistentError, NotSampleableError
from parl.replay.device import jump, layout, pick, structs
from parl.replay.device.place import Parts, Place
from parl.replay.device.structs import LANES, SIZES, WORDS, Mode, Word

if TYPE_CHECKING:
    from torch import Tensor

_MODES = {"stratified": Mode.STRATIFIED, "independent": Mode.INDEPENDENT, "systematic": Mode.SYSTEMATIC}


def draws(count: int, mode: str, rank: int, learners: int) -> structs.Draws:
    """What is drawn, checked."""
    if not 0 <= count <= jump.DRAWS_MAX:
        raise ValueError(f'{count} draws are outside 0..={jump.DRAWS_MAX} (device="cuda")')
    if mode == "split":
        if not 0 <= rank < learners:
            raise ValueError(f"rank {rank} is outside 0..{learners}")
        return structs.Draws(Mode.STRATIFIED, count, rank, learners)
    if mode not in _MODES:
        names = ", ".join([*_MODES, "split", *pick.MODES])
        raise ValueError(f'mode {mode!r} is none of {names}, which device="cuda" has')
    return structs.Draws(_MODES[mode], count, 0, 1)


class Memory:
    """The memory of a tree: levels, words, stamps, jumps; beside parts of the caller's."""

    def __init__(self, place: Place, capacity: int, units: float, *, is_chained: bool, parts: Parts) -> None:
        self.place, self.capacity, self.units, self.parts = place, capacity, units, parts
        self.levels = layout.levels(capacity)
        for i, entries in enumerate(self.levels):
            parts.add(f"level{i}", entries, 8 if i else 4)
        parts.add("words", WORDS, 8)
        parts.add("stamps", self.levels[0], 4)
        matrices = jump.matrices()
        parts.add("jumps", matrices.size, 4)
        parts.allocate(place)
        parts.view("jumps", "int32").copy_(place.torch.from_numpy(matrices.view(np.int32)))
        self.words: Tensor = parts.view("words", "int64")
        self.plan = structs.Tree(
            words=parts.address("words"),
            stamps=parts.address("stamps"),
            jumps=parts.address("jumps"),
            units=units,
            depth=len(self.levels),
            capacity=capacity,
            is_chained=int(is_chained),
        )
        for i in range(len(self.levels)):
            self.plan.levels[i] = parts.address(f"level{i}")

    def level(self, i: int) -> Tensor:
        """Sums of a level, weights of the leaves for 0."""
        return self.parts.view(f"level{i}", "int64" if i else "int32")

    def word(self, which: Word) -> int:
        """A counter; waits for the device."""
        return int(self.words[which].item())

    def set_words(self, first: int, values: list[int]) -> None:
        """Writes words, given as unsigned numbers."""
        signed = np.array(values, np.uint64).view(np.int64)
        self.words[first : first + len(values)].copy_(self.place.torch.from_numpy(signed))

    def get_words(self, first: int, count: int) -> list[int]:
        """Words as unsigned numbers; waits for the device."""
        return self.words[first : first + count].cpu().numpy().view(np.uint64).tolist()

    def total(self) -> float:
        """Sum of all priorities; waits for the device."""
        return int(self.level(len(self.levels) - 1).sum().item()) / self.units

    def histogram(self) -> Any:
        """(33,) uint64: leaves by the number of significant bits of their weights; waits for the device."""
        found = np.array(self.get_words(Word.HISTOGRAM, SIZES), np.uint64)
        found[0] = self.capacity - int(found[1:].sum())
        return found

    def verify(self) -> None:
        """Compares every sum with those below it; waits for the device."""
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

    def add_up(self) -> None:
        """Makes all sums anew from the leaves."""
        for i in range(1, len(self.levels)):
            below = self.level(i - 1).long().reshape(-1, LANES).sum(1)
            stored = self.level(i)
            stored.zero_()
            stored[: len(below)] = below

    def take_counts(self, *which: Word) -> list[int]:
        """Counters of what went wrong, which begin anew; waits for the device."""
        found = [self.word(one) for one in which]
        for one, count in zip(which, found, strict=True):
            if count:
                self.words[one] = 0
        return found


class CudaSumTree:
    """:class:`parl.SumTree` on a CUDA device. Not made directly: ``SumTree(capacity, device="cuda")``.

    Indices and priorities are CUDA tensors that torch has allocated; what lies elsewhere is copied there.
    ``update``, ``sample`` and ``find`` go to torch's current stream and do not wait, so that they can be
    captured in a CUDA graph; the state of the draws is on the device. The same seed and the same updates give
    the draws of ``SumTree(capacity, fan_out=32)``.

    - Fan-out is 32: a warp is a node.
    - Bad indices and priorities are left out and counted; :meth:`check` raises them, and draws from an empty
      tree, which give index 0 and priority 0.
    - Draws ``"without_replacement"``, ``"uniform"``, ``"eviction"`` and mixtures have the CPU's laws with
      random numbers of their own; they and ``"largest"`` read every leaf.
    """

    def __init__(self, capacity: int, scale: float = 65536.0, seed: int = 0, *, device: str = "cuda") -> None:
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale {scale} is not a finite number above 0")
        self._place = self._place_at(device)
        self._memory = Memory(self._place, int(capacity), float(scale), is_chained=True, parts=Parts())
        self.seed(seed)

    @classmethod
    def _place_at(cls, device: str) -> Place:
        return Place(device)

    # ------------------------------------------------------------ updates and draws

    def update(self, indices: Any, priorities: Any) -> None:
        """Sets priorities; of equal indices the last one wins. Does not wait.

        Args:
            indices: (n,) integers in ``0..capacity``.
            priorities: (n,) float32 or float64, or one number for all.

        Raises:
            ValueError: the lengths differ.
        """
        at = self._place.given(indices, "int64").reshape(-1)
        given, reals = reals_of(self._place, priorities, len(at), "priorities")
        if len(at) == 0:
            return
        call = structs.TreeUpdate(at.data_ptr(), reals, len(at))
        for kernel in ("parl_tree_stamp", "parl_tree_scatter"):
            self._place.launch(kernel, layout.blocks(len(at)), layout.THREADS, self._memory.plan, call)
        del given

    def sample(
        self, n: int, *, mode: str = "stratified", rank: int = 0, learners: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Draws ``n`` leaves with probability proportional to their priorities. Does not wait.

        Args:
            n: how many.
            mode: ``"stratified"``, ``"independent"``, ``"systematic"`` or ``"split"``, or one of those that
                read every leaf: ``"without_replacement"``, ``"uniform"``, ``"largest"``, ``"eviction"``.
            rank: of this caller, for ``"split"``.
            learners: callers, for ``"split"``.

        Returns:
            (n,) int64 indices and (n,) float64 priorities, as they were drawn.

        Raises:
            ValueError: a mode that is none, or more distinct leaves than there are.
        """
        if mode in pick.MODES:
            draws(n, "independent", rank, learners)
            indices, weights = pick.chosen(self._memory, self._seed(), n, mode)
            return self._taken(indices, weights)
        chosen = draws(n, mode, rank, learners)
        indices, priorities = self._place.empty((n,), "int64"), self._place.empty((n,), "float64")
        call = structs.TreeSample(chosen, indices.data_ptr(), priorities.data_ptr())
        blocks = max(-(-n // layout.DRAWS_PER_BLOCK), 1)
        self._place.launch("parl_tree_sample", blocks, layout.SAMPLE_THREADS, self._memory.plan, call)
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
        """As :meth:`parl.SumTree.sample_mixture`; reads every leaf, and does not wait.

        Args:
            n: how many.
            uniform: share drawn uniformly among all leaves that have a priority.
            newest: share drawn uniformly among those of the newest leaves.
            newest_from: the oldest of the newest leaves.
            newest_count: how many leaves count as newest, going on at leaf 0 after the last one.

        Returns:
            (n,) int64 indices, (n,) float64 priorities, and (n,) float64 probabilities with which one draw of
            the mixture comes up with the leaf.

        Raises:
            ValueError: shares are below 0 or above 1 together, or the newest leaves are none.
        """
        draws(n, "independent", 0, 1)
        if not (0 <= uniform <= 1 and 0 <= newest <= 1 and uniform + newest <= 1):
            raise ValueError(
                f"shares uniform {uniform} and newest {newest} are not at least 0 with a sum of at most 1"
            )
        if newest > 0 and not (0 <= newest_from < self.capacity and 0 < newest_count <= self.capacity):
            raise ValueError(
                f"{newest_count} newest leaves from leaf {newest_from} on are none of 0..{self.capacity}"
            )
        window = newest_from, newest_count if newest > 0 else 0
        found = pick.mixture(self._memory, self._seed(), n, (uniform, newest), window)
        return *self._taken(*found[:2]), found[2]

    def _seed(self) -> Tensor:
        """A word of the generator, for random numbers of a call's own; one int64, on the device."""
        return self._memory.words[Word.GENERATOR].clone()

    def _taken(self, indices: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """What a call returns that drew these; the generator moves on."""
        pick.note(self._memory, weights)
        # A batch of nothing is a call too.
        self.sample(0)
        torch = self._place.torch
        return torch.where(weights > 0, indices, 0), weights.double() / self.scale

    def find(self, prefix_sums: Any, *, total: float | None = None) -> Tensor:
        """Leaves in which prefix sums fall, (n,) int64; -1, and counted, where one is outside. Does not wait.

        Args:
            prefix_sums: (n,) float, below the total.
            total: that the prefix sums were made from, if it is not that of this moment.
        """
        asked = self._place.given(prefix_sums, "float64").reshape(-1)
        indices = self._place.empty((len(asked),), "int64")
        if len(asked):
            of = -1.0 if total is None else float(total)
            call = structs.TreeFind(asked.data_ptr(), indices.data_ptr(), of, len(asked))
            blocks = layout.blocks(len(asked) * LANES)
            self._place.launch("parl_tree_find", blocks, layout.THREADS, self._memory.plan, call)
        return indices

    def check(self) -> None:
        """Waits for the device, and raises what went wrong on it since the last look.

        Raises:
            IndexError: indices or prefix sums were outside.
            ValueError: priorities were negative, infinite or NaN.
            NotSampleableError: draws from an empty tree.
        """
        indices, priorities, empty = self._memory.take_counts(Word.BAD_INDEX, Word.BAD_PRIORITY, Word.EMPTY)
        if priorities:
            raise ValueError(f"{priorities} priorities were not finite numbers >= 0; they were left out")
        if indices:
            raise IndexError(f"{indices} leaves or prefix sums were outside the tree; they were left out")
        if empty:
            raise NotSampleableError(f"{empty} calls drew from a tree in which every priority was 0")

    def __getitem__(self, index: Any) -> Any:
        """The priority of one leaf (waits), or those of many as a (n,) float64 tensor."""
        leaves = self._memory.level(0)
        if isinstance(index, int):
            return int(leaves[self._leaf(index)].item()) / self.scale
        return leaves[self._place.given(index, "int64")].double() / self.scale

    def __setitem__(self, index: Any, value: Any) -> None:
        """As :meth:`update`."""
        self.update([self._leaf(index)] if isinstance(index, int) else index, value)

    def _leaf(self, index: int) -> int:
        if not -self.capacity <= index < self.capacity:
            raise IndexError(f"leaf {index} is outside -{self.capacity}..{self.capacity}")
        return index % self.capacity

    # ------------------------------------------------------------ what it is

    @property
    def device(self) -> Any:
        """Where it lies."""
        return self._place.device

    @property
    def capacity(self) -> int:
        """Number of leaves."""
        return self._memory.capacity

    @property
    def fan_out(self) -> int:
        """Children per node: 32."""
        return LANES

    @property
    def scale(self) -> float:
        """Units per priority 1."""
        return self._memory.units

    @property
    def max_priority(self) -> float:
        """The largest priority that is stored as it is."""
        return structs.MAX_WEIGHT / self.scale

    @property
    def total(self) -> float:
        """Sum of all priorities; waits for the device, as the properties below."""
        return self._memory.total()

    @property
    def saturated(self) -> int:
        """Priorities that were too large and stored as :attr:`max_priority`."""
        return self._memory.word(Word.SATURATED)

    @property
    def largest(self) -> float:
        """The largest priority ever stored."""
        return self._memory.word(Word.LARGEST_EVER) / self.scale

    @property
    def positive(self) -> int:
        """Leaves with a priority above 0."""
        return self.capacity - int(self.histogram()[0])

    @property
    def restarts(self) -> int:
        """Draws that had to start anew: none, launches come one after the other."""
        return 0

    @property
    def nbytes(self) -> int:
        """Memory on the device."""
        return self._memory.parts.bytes

    def histogram(self) -> Any:
        """(33,) uint64: leaves by the number of significant bits of their weights."""
        return self._memory.histogram()

    def verify(self) -> None:
        """Checks that every sum is exact; raises InconsistentError."""
        self._memory.verify()

    def seed(self, seed: int) -> None:
        """Draws go on as those of a new tree with this seed."""
        self._memory.set_words(Word.GENERATOR, jump.seeded(seed))

    @property
    def rng_state(self) -> list[int]:
        """The state of the draws, as that of :class:`parl.SumTree`."""
        return self._memory.get_words(Word.GENERATOR, 4)

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        if len(state) != 4 or not any(state):
            raise ValueError(f"state {state} of a generator is not four words of which one is not 0")
        self._memory.set_words(Word.GENERATOR, list(state))

    def __delitem__(self, index: Any) -> None:
        """Sets priorities to 0."""
        self[index] = 0.0

    def __len__(self) -> int:
        return self.capacity

    def __repr__(self) -> str:
        return f"SumTree(capacity={self.capacity}, fan_out={LANES}, device={str(self.device)!r})"


def reals_of(place: Place, value: Any, count: int, name: str) -> tuple[Tensor, structs.Reals]:
    """(count,) floats on the device as wide as they are, or one for all; and how kernels see them."""
    torch = place.torch
    tensor = torch.as_tensor(value, device=place.device)
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float64 if tensor.dtype == torch.int64 else torch.float32)
    tensor = tensor.contiguous()
    is_scalar = tensor.ndim == 0
    if not is_scalar and tuple(tensor.shape) != (count,):
        raise ValueError(f"{name} have shape {tuple(tensor.shape)}, expected ({count},)")
    is_double = tensor.dtype == torch.float64
    return tensor, structs.Reals(tensor.data_ptr(), int(is_double), int(is_scalar))
