"""Learners started by ``torchrun``: each has its own environments; gradients are averaged over all.

::

    torchrun --nproc-per-node 2 -m parl train dqn --env CartPole-v1

Every process is a learner with its share of environments, batch, replay and steps. Rank 0 also evaluates,
logs and saves; the other ranks wait while it does. Off-policy (:class:`TorchrunAllReduce`) rank 0 appends a
flag to the gradients that it sends: average, save or stop. On-policy (:class:`RolloutCoordinator`) it
broadcasts the same flag before each rollout.

Processes connect by the environment variables that ``torchrun`` sets, and communicate by
``torch.distributed``: with gloo if learners are on CPUs, NCCL if on GPUs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from parl.runtime.distributed.group import Group

SAVE, END, ROLLOUT = 1.0, 2.0, 3.0
"""Requests of rank 0."""


class TorchrunAllReduce:
    """A :class:`parl.runtime.gradient_allreduce.GradientAllReduce` over the processes of torchrun.

    Args:
        group: the group, connected.
        device: device of the learner.
        compression: ``"none"``: gradients are sent as float32; ``"fp16"``, ``"bf16"``: their shares of the
            mean are rounded to 16 bits, sent and summed so.

    Attributes:
        request: request of rank 0 when :meth:`average` last returned False.
    """

    def __init__(self, group: Group, device: str, compression: str = "none") -> None:
        self._group = group
        dtype = {"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[compression]
        self._buffer = torch.empty(0, device=device, dtype=dtype)
        self.request = 0.0
        # A name of this run, because a store can outlive a process group.
        self._counter = f"requests-{group.from_rank_zero(uuid.uuid4().hex)}"
        self._received = 0

    @property
    def has_request(self) -> bool:
        """Whether rank 0 sends a request, or has begun to, in which this process has not taken part."""
        return self._group.add_to(self._counter, 0) > self._received

    def receive_request(self, gradients: Tensor) -> None:
        """Called by another rank while :attr:`has_request`: takes part without gradients.

        Args:
            gradients: (P,), set to 0.
        """
        self._sum(gradients.zero_(), 0.0, None)

    def average(
        self, gradients: Tensor, present: bool, meanwhile: Callable[[], object] | None = None
    ) -> bool:
        """See :class:`GradientAllReduce`; only rank 0 can be absent, which asks all to end."""
        if not present:
            self.send_request(gradients, END)
            return False
        return self._sum(gradients, 0.0, meanwhile)

    def send_request(self, gradients: Tensor, request: float) -> None:
        """Called by rank 0: sends ``request`` to all processes, which skip this update."""
        # Those that do not learn yet read the counter.
        self._group.add_to(self._counter, 1)
        self._sum(gradients, request, None)

    def _sum(self, gradients: Tensor, flag: float, meanwhile: Callable[[], object] | None) -> bool:
        import torch.distributed as dist

        rounds = self._buffer.dtype != torch.float32
        # Divided first, so that sums of 16 bits do not overflow.
        given = gradients.div_(self._group.size) if rounds and not flag else gradients
        buffer = self._buffer = pack_flag(self._buffer, given, flag)
        with self._group.communication():
            work: Any = dist.all_reduce(buffer, async_op=True)
        if meanwhile is not None:
            meanwhile()
        with self._group.communication():
            work.wait()
            self.request = float(buffer[-1].item())
        if self.request:
            self._received += 1
            return False
        gradients.copy_(buffer[:-1] if rounds else buffer[:-1].div_(self._group.size))
        return True

    def close(self) -> None:
        """Does nothing: the process group outlives the loop."""


class RolloutCoordinator:
    """Broadcasts the requests of rank 0 before each rollout, and averages gradients.

    Args:
        group: the group, connected.
        device: device of the learners.
    """

    def __init__(self, group: Group, device: str) -> None:
        self._group, self._device = group, device

    def send(self, request: float, env_steps: int) -> None:
        """Called by rank 0: sends the next request and the number of transitions so far."""
        self._broadcast(torch.tensor([request, float(env_steps)], dtype=torch.float64))

    def receive(self) -> tuple[float, int]:
        """Called by the other ranks: returns what rank 0 sent."""
        request, env_steps = self._broadcast(torch.zeros(2, dtype=torch.float64)).tolist()
        return request, int(env_steps)

    def _broadcast(self, message: Tensor) -> Tensor:
        import torch.distributed as dist

        message = message.to(self._device)
        with self._group.communication():
            dist.broadcast(message, src=0)
        return message

    def average(self, values: Tensor) -> None:
        """Replaces ``values``, on any device, by their mean over the group."""
        import torch.distributed as dist

        sent = values.to(self._device)
        with self._group.communication():
            dist.all_reduce(sent)
        sent.div_(self._group.size)
        if sent is not values:
            values.copy_(sent)


def pack_flag(buffer: Tensor, gradients: Tensor, flag: float) -> Tensor:
    """Returns ``gradients`` (P,), or zeros unless ``flag`` is 0, and ``flag``, in a buffer (P + 1,)."""
    size = len(gradients)
    if len(buffer) != size + 1:
        buffer = torch.zeros(size + 1, device=buffer.device, dtype=buffer.dtype)
    if flag == 0.0:
        buffer[:size] = gradients
    else:
        buffer.zero_()
    buffer[size] = flag
    return buffer
