"""Sampling modes of a sum tree on a CUDA device other than by priority, as torch operations over all leaves.

None of them synchronizes. Distinct leaves are those with the smallest exponential random variables, as in
``crates/sumtree/kernels/select.cu``. Source: Efraimidis & Spirakis (2006), "Weighted random sampling with a
reservoir".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.cuda.structs import Word

if TYPE_CHECKING:
    from torch import Tensor

    from parl.replay.cuda.tree import TreeMemory

MODES = ("without_replacement", "uniform", "largest", "eviction")


def random_words(seed: Tensor, count: int, torch: Any) -> Tensor:
    """(count,) int64 random words. Source: Steele, Lea & Flood (2014), SplitMix64."""
    # SplitMix64's constants as signed numbers; products wrap around.
    word = seed + torch.arange(1, count + 1, device=seed.device) * -0x61C8864680B583EB
    word = (word ^ _right(word, 30)) * -0x40A7B892E31B1A47
    word = (word ^ _right(word, 27)) * -0x6B2FB644ECCEEE15
    return word ^ _right(word, 31)


def _right(word: Tensor, by: int) -> Tensor:
    """Logical shift to the right."""
    return (word >> by) & ((1 << (64 - by)) - 1)


def uniform_numbers(words: Tensor) -> Tensor:
    """Converts random words to float64 numbers in [0, 1)."""
    return _right(words, 11).double() / 2**53


def select(memory: TreeMemory, seed: Tensor, count: int, mode: str) -> tuple[Tensor, Tensor]:
    """Samples leaves in one of :data:`MODES`.

    Args:
        memory: the tree.
        seed: () int64 tensor, seed of the random numbers.
        count: number of leaves to sample.
        mode: the mode.

    Returns:
        (count,) int64 leaves and (count,) int64 weights, 0 where no leaf with a weight was left.

    Raises:
        ValueError: ``count`` distinct leaves are more than the tree has.
    """
    torch, capacity = memory.cuda.torch, memory.capacity
    leaves = memory.level(0)[:capacity].long()
    if mode == "uniform":
        at = _uniform(leaves > 0, uniform_numbers(random_words(seed, count, torch)), torch)
        return at, leaves[at]
    if count > capacity:
        raise ValueError(f"{count} distinct leaves were requested, the tree has {capacity}")
    if mode == "largest":
        # Of equal leaves the first comes first.
        keys: Tensor = (leaves << 32) - torch.arange(capacity, device=leaves.device)
    else:
        waits = -torch.log(1 - uniform_numbers(random_words(seed, capacity, torch)))
        keys = -(waits * leaves if mode == "eviction" else waits / leaves)
        keys = torch.where(leaves > 0, keys, -torch.inf)
    at = torch.topk(keys, count, sorted=True).indices
    return at, leaves[at]


def _uniform(mask: Tensor, unit: Tensor, torch: Any) -> Tensor:
    """Indices of true entries of ``mask``, chosen uniformly by the random numbers ``unit`` in [0, 1)."""
    ranks = mask.long().cumsum(0)
    rank = (unit * ranks[-1]).long() + 1
    return torch.searchsorted(ranks, rank).clamp(max=len(ranks) - 1)


def mixture(
    memory: TreeMemory, seed: Tensor, count: int, shares: tuple[float, float], window: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Samples from a mixture of draws by priority, uniform draws and draws from the newest leaves.

    Args:
        memory: the tree.
        seed: () int64 tensor, seed of the random numbers.
        count: number of leaves to sample.
        shares: shares of the uniform draws and of the draws from the newest leaves.
        window: the oldest of the newest leaves, and their number.

    Returns:
        (count,) int64 leaves, (count,) int64 weights, and (count,) float64 probabilities that one draw of the
        mixture yields the leaf.
    """
    torch, (uniform, newest), (first, among) = memory.cuda.torch, shares, window
    leaves = memory.level(0)[: memory.capacity].long()
    random = uniform_numbers(random_words(seed, count + 1, torch))
    unit, position = random[1:], torch.arange(count, device=leaves.device)
    # One random number rounds both shares and their sum, so that each of the three parts is exact on average.
    young = (newest * count + random[0]).long().clamp(max=count)
    others = ((newest + uniform) * count + random[0]).long().clamp(max=count)
    sums, alive = leaves.cumsum(0), leaves > 0
    strata = (count - others).clamp(min=1)
    target = ((position - others + unit) / strata * sums[-1]).long()
    at = torch.searchsorted(sums, target, right=True).clamp(max=len(leaves) - 1)
    at, ring = torch.where(position < others, _uniform(alive, unit, torch), at), position
    if among > 0:
        ring = (torch.arange(among, device=leaves.device) + first) % memory.capacity
        at = torch.where(position < young, ring[_uniform(alive[ring], unit, torch)], at)
    odds = (1 - uniform - newest) * leaves[at].double() / sums[-1].clamp(min=1)
    odds = odds + uniform / alive.sum().clamp(min=1).double()
    if among > 0:
        is_young = ((at - first) % memory.capacity < among).double()
        odds = odds + newest * is_young / alive[ring].sum().clamp(min=1)
    return at, leaves[at], odds


def count_empty(memory: TreeMemory, weights: Tensor) -> None:
    """Counts a call that sampled from an empty tree, for :meth:`CudaSumTree.check`."""
    memory.words[Word.EMPTY : Word.EMPTY + 1] += (weights == 0).any()
