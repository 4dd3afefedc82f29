"""The processes that ``torchrun`` started: how a run divides its settings among them, and how they connect.

The module imports torch only to connect and to communicate, so that settings are checked without it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from parl.errors import ConfigError, NonFiniteError, RunDirectoryError, WorkerError

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Time limit for evaluations and checkpoints of rank 0, after which the other ranks raise an error.
_TIMEOUT = timedelta(hours=2)


class PeerError(WorkerError):
    """Another process of torchrun failed or cannot be reached; the message says which and why if known."""


class NonFinitePeerError(PeerError, NonFiniteError):
    """Another process of torchrun failed with a NonFiniteError."""


def _store() -> Any:
    """The key-value store of the processes."""
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store()


@dataclass(frozen=True)
class Group:
    """The processes that ``torchrun`` started, and this one's rank.

    Attributes:
        rank: rank of this process.
        size: number of processes.
        local_rank: rank of this process on this machine.
        local_size: number of processes on this machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int = 1

    @classmethod
    def from_environment(cls) -> Group | None:
        """The group; None without ``torchrun``, or if it started only this process."""
        if any(name not in os.environ for name in _VARIABLES) or int(os.environ["WORLD_SIZE"]) < 2:
            return None
        size = int(os.environ["WORLD_SIZE"])
        here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        return cls(int(os.environ["RANK"]), size, int(os.environ["LOCAL_RANK"]), here)

    def share(self, name: str, value: int) -> int:
        """This process's share of ``value``, a setting of the whole group.

        Raises:
            ConfigError: ``value`` cannot be divided evenly.
        """
        if value % self.size:
            raise ConfigError(f"{name} = {value} is no multiple of the {self.size} processes of torchrun")
        return value // self.size

    def check_sees(self, run: Path) -> None:
        """Checks that this process, unless it is the first one, sees the directory ``run``.

        Raises:
            RunDirectoryError: it does not.
        """
        if self.rank and not (run / "run.json").is_file():
            raise RunDirectoryError(
                f"process {self.rank} of torchrun finds no run directory at {run.absolute()}: all machines "
                "must see that of the first process at the same path, as on a shared file system"
            )

    def device(self, wanted: str) -> str:
        """The device of this process: for ``cuda``, the device with its local rank."""
        return f"cuda:{self.local_rank}" if wanted == "cuda" else wanted

    def connect(self, device: str) -> None:
        """Joins the process group; safe to call twice."""
        import torch
        import torch.distributed as dist

        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=_TIMEOUT)

    @contextlib.contextmanager
    def membership(self) -> Generator[None]:
        """Context of this process's part of a run: tells the others why it failed, and leaves the group."""
        self._count_run(1)
        try:
            yield
        except PeerError:
            raise
        except Exception as error:
            with contextlib.suppress(RuntimeError):
                why = f"process {self.rank} of torchrun failed: {type(error).__name__}: {error}"
                _store().set(self._failure_key(), json.dumps([isinstance(error, NonFiniteError), why]))
            raise
        finally:
            self.disconnect()

    @contextlib.contextmanager
    def communication(self) -> Generator[None]:
        """Context of calls that communicate.

        Raises:
            PeerError: it failed, most often since a process ended.
        """
        try:
            yield
        except RuntimeError as error:
            raise self._peer_error(error) from error

    def _count_run(self, more: int) -> int:
        """Number of runs of this process: the store outlives them."""
        return int(_store().add(f"parl/runs-{self.rank}", more))

    def _failure_key(self) -> str:
        """Name in the store of the reason why a process failed in this run."""
        return f"parl/failure-{self._count_run(0)}"

    def _peer_error(self, error: RuntimeError) -> PeerError:
        """The error of a process that failed; that of torch if it told none, or the store is gone too."""
        with contextlib.suppress(RuntimeError):
            key = self._failure_key()
            if _store().check([key]):
                is_non_finite, why = json.loads(_store().get(key))
                return NonFinitePeerError(why) if is_non_finite else PeerError(why)
        reason = str(error).partition("\n")[0]
        return PeerError(f"a process of torchrun cannot be reached, and may have been killed: {reason}")

    def from_rank_zero(self, value: Any) -> Any:
        """The ``value`` of rank 0, in every process."""
        import torch.distributed as dist

        box = [value]
        with self.communication():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def add_to(self, counter: str, amount: int) -> int:
        """Adds ``amount`` to a counter that all processes share, 0 at first, and returns its value."""
        with self.communication():
            return int(_store().add(f"parl/{counter}", amount))

    def disconnect(self) -> None:
        """Leaves the process group; safe to call twice."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
