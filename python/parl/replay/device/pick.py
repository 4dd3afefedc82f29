"""Draws of a device's tree that are not by weight alone: torch's operations over all leaves; nobody waits.

Distinct leaves are those that come first of exponential variables, as in
``crates/sumtree/kernels/select.cu``. Source: Efraimidis & Spirakis (2006), "Weighted random sampling with a
reservoir".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.device.structs import Word

if TYPE_CHECKING:
    from torch import Tensor

    from parl.replay.device.tree import Memory

MODES = ("without_replacement", "uniform", "largest", "eviction")


def words_of(seed: Tensor, count: int, torch: Any) -> Tensor:
    """(count,) int64 random words. Source: Steele, Lea & Flood (2014), SplitMix64."""
    # The constants as signed numbers; products wrap.
    word = seed + torch.arange(1, count + 1, device=seed.device) * -0x61C8864680B583EB
    word = (word ^ _right(word, 30)) * -0x40A7B892E31B1A47
    word = (word ^ _right(word, 27)) * -0x6B2FB644ECCEEE15
    return word ^ _right(word, 31)


def _right(word: Tensor, by: int) -> Tensor:
    """Shifted to the right, zeros coming in."""
    return (word >> by) & ((1 << (64 - by)) - 1)


def units(words: Tensor) -> Tensor:
    """Numbers from 0 to below 1, float64."""
    return _right(words, 11).double() / 2**53


def chosen(memory: Memory, seed: Tensor, count: int, mode: str) -> tuple[Tensor, Tensor]:
    """(count,) int64 leaves and their weights, 0 where there is none left.

    Raises:
        ValueError: more distinct leaves than there are.
    """
    torch, capacity = memory.place.torch, memory.capacity
    leaves = memory.level(0)[:capacity].long()
    if mode == "uniform":
        at = _uniform(leaves > 0, units(words_of(seed, count, torch)), torch)
        return at, leaves[at]
    if count > capacity:
        raise ValueError(f"{count} distinct leaves were asked for, {capacity} is the most there can be")
    if mode == "largest":
        # Of equal ones the first.
        keys: Tensor = (leaves << 32) - torch.arange(capacity, device=leaves.device)
    else:
        waits = -torch.log(1 - units(words_of(seed, capacity, torch)))
        keys = -(waits * leaves if mode == "eviction" else waits / leaves)
        keys = torch.where(leaves > 0, keys, -torch.inf)
    at = torch.topk(keys, count, sorted=True).indices
    return at, leaves[at]


def _uniform(there: Tensor, unit: Tensor, torch: Any) -> Tensor:
    """Places that are ``there``, each alike."""
    ranks = there.long().cumsum(0)
    wanted = (unit * ranks[-1]).long() + 1
    return torch.searchsorted(ranks, wanted).clamp(max=len(ranks) - 1)


def mixture(
    memory: Memory, seed: Tensor, count: int, shares: tuple[float, float], window: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Leaves of a mixture, their weights, and the probabilities with which one draw comes up with them.

    Args:
        memory: of the tree.
        seed: of the random numbers, one int64.
        count: how many.
        shares: of uniform draws, of draws among the newest leaves.
        window: the oldest of the newest leaves, and how many there are.
    """
    torch, (uniform, newest), (first, among) = memory.place.torch, shares, window
    leaves = memory.level(0)[: memory.capacity].long()
    random = units(words_of(seed, count + 2, torch))
    unit, place = random[2:], torch.arange(count, device=leaves.device)
    # Rounded up with the probability of the fraction.
    young = (newest * count + random[0]).long()
    others = torch.minimum(young + (uniform * count + random[1]).long(), young.new_tensor(count))
    sums, alive = leaves.cumsum(0), leaves > 0
    strata = (count - others).clamp(min=1)
    target = ((place - others + unit) / strata * sums[-1]).long()
    at = torch.searchsorted(sums, target, right=True).clamp(max=len(leaves) - 1)
    at, ring = torch.where(place < others, _uniform(alive, unit, torch), at), place
    if among > 0:
        ring = (torch.arange(among, device=leaves.device) + first) % memory.capacity
        at = torch.where(place < young, ring[_uniform(alive[ring], unit, torch)], at)
    odds = (1 - uniform - newest) * leaves[at].double() / sums[-1].clamp(min=1)
    odds = odds + uniform / alive.sum().clamp(min=1).double()
    if among > 0:
        is_young = ((at - first) % memory.capacity < among).double()
        odds = odds + newest * is_young / alive[ring].sum().clamp(min=1)
    return at, leaves[at], odds


def note(memory: Memory, weights: Tensor) -> None:
    """Counts a call that drew what is not there."""
    memory.words[Word.EMPTY : Word.EMPTY + 1] += (weights == 0).any()
