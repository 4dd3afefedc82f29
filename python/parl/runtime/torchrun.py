"""Learners started by ``torchrun``: each with environments of its own, gradients averaged over all.

::

    torchrun --nproc-per-node 2 -m parl train dqn --env CartPole-v1

Every process is a learner with its share of environments, batch, replay and steps. Rank 0 also evaluates,
logs and saves; the others follow it, and wait while it is busy. Where a replay couples actors and learners
(:class:`GroupPeers`), what rank 0 wants besides updates it says in the number that travels behind the
gradients: that all save, or that all end. Where every process collects and learns in turn (:class:`InStep`),
it says so before each rollout.

Processes find each other by the variables that ``torchrun`` sets; ``torch.distributed`` does the rest: gloo
where learners compute on processors, NCCL on GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from parl.errors import ConfigError
from parl.runtime.peers import packed

SAVE, END, ROLLOUT = 1.0, 2.0, 3.0
"""What rank 0 may ask for."""
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Rank 0 may evaluate and save for so long before the others give up.
_TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True)
class Group:
    """This process's place among those that ``torchrun`` started.

    Attributes:
        rank: its number.
        size: how many there are.
        local: its number on this machine.
        local_size: how many there are on this machine.
    """

    rank: int
    size: int
    local: int
    local_size: int = 1

    @classmethod
    def found(cls) -> Group | None:
        """The group, None where ``torchrun`` started nobody or this process alone."""
        if any(name not in os.environ for name in _VARIABLES) or int(os.environ["WORLD_SIZE"]) < 2:
            return None
        size = int(os.environ["WORLD_SIZE"])
        here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        return cls(int(os.environ["RANK"]), size, int(os.environ["LOCAL_RANK"]), here)

    def share(self, name: str, value: int) -> int:
        """This process's share of ``value``, a setting for all of them.

        Raises:
            ConfigError: it cannot be shared evenly.
        """
        if value % self.size:
            raise ConfigError(f"{name} = {value} is no multiple of the {self.size} processes of torchrun")
        return value // self.size

    def device(self, wanted: str) -> str:
        """The device of this process: with ``cuda``, that of its number on this machine."""
        return f"cuda:{self.local}" if wanted == "cuda" else wanted

    def connect(self, device: str) -> None:
        """Joins the others; safe to call twice."""
        import torch.distributed as dist

        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=_TIMEOUT)

    def from_first(self, value: Any) -> Any:
        """What rank 0 gave here, in every process."""
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def disconnect(self) -> None:
        """Leaves; safe to call twice."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


class GroupPeers:
    """The learners of a group. See :class:`parl.runtime.peers.Peers`.

    Attributes:
        asked: what rank 0 wanted when :meth:`average` last gave False.
    """

    def __init__(self, group: Group, device: str) -> None:
        self._group = group
        self._buffer = torch.empty(0, device=device)
        self.asked = 0.0

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`Peers`; absent here is rank 0 alone, which then asks all to end."""
        return self._sum(gradients, 0.0 if present else END, meanwhile)

    def ask(self, gradients: Tensor, what: float) -> None:
        """Rank 0 asks for ``what``; the others' update is left out."""
        self._sum(gradients, what, None)

    def _sum(self, gradients: Tensor, sign: float, meanwhile: Callable[[], object] | None) -> bool:
        import torch.distributed as dist

        buffer = self._buffer = packed(self._buffer, gradients, sign)
        work: Any = dist.all_reduce(buffer, async_op=True)
        if meanwhile is not None:
            meanwhile()
        work.wait()
        self.asked = float(buffer[-1].item())
        if self.asked:
            return False
        gradients.copy_(buffer[:-1].div_(self._group.size))
        return True

    def close(self) -> None:
        """Ends nothing: the group is the process's."""


class InStep:
    """A group whose processes collect rollouts and learn from them in turn, all at the same time.

    Args:
        group: its processes are connected.
        device: where learners compute.
    """

    def __init__(self, group: Group, device: str) -> None:
        self._size = group.size
        self._device = device

    def say(self, what: float, env_steps: int) -> None:
        """Rank 0: what all do next, and how many transitions the run has."""
        self._next(torch.tensor([what, float(env_steps)], dtype=torch.float64))

    def hear(self) -> tuple[float, int]:
        """The others: what rank 0 said."""
        what, env_steps = self._next(torch.zeros(2, dtype=torch.float64)).tolist()
        return what, int(env_steps)

    def _next(self, word: Tensor) -> Tensor:
        import torch.distributed as dist

        word = word.to(self._device)
        dist.broadcast(word, src=0)
        return word

    def average(self, values: Tensor) -> None:
        """Replaces ``values``, on any device, by their mean over the group."""
        import torch.distributed as dist

        sent = values.to(self._device)
        dist.all_reduce(sent)
        sent.div_(self._size)
        if sent is not values:
            values.copy_(sent)
