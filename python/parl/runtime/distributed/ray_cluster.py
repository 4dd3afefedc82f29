"""A Ray cluster as the place of actors: connection, weights in its object store, actors that are replaced.

Used by the off-policy actors (``ray_actors.py``), by rollouts (``ray_rollouts.py``) and by populations
(``ray_population.py``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from parl.errors import ConfigError, NonFiniteError, WorkerError
from parl.runtime.loop import state_or_reason
from parl.runtime.seeds import actor_seeds, seed_modules
from parl.runtime.weights import SharedWeights

if TYPE_CHECKING:
    from parl.runtime.setup import RunSetup

# Number of failures of an actor in a row, without a result between them, that ends the run.
_FAILURES_MAX = 3
# Time in seconds within which a cluster must accept a connection.
_ANSWER_S = 10.0
# Seconds within which Ray should find a processor for an actor and make it.
_PLACEMENT_S = 10.0
# Seeds of a replaced actor differ from those of any resumed run.
_SEEDS_PER_RESUME = 1_000

_log = logging.getLogger("parl")


@dataclass(frozen=True)
class RayCluster:
    """How a run uses Ray.

    Attributes:
        address: address of the cluster, as for ``ray.init``; None: that in ``RAY_ADDRESS``, else a new
            cluster on this machine.
        steps: vector steps per request of an off-policy actor.
    """

    address: str | None
    steps: int = 1


def _differ(address: str, other: str) -> bool:
    """Whether two addresses, host:port, are certainly not of the same cluster."""
    (host, _, port), (other_host, _, other_port) = address.rpartition(":"), other.rpartition(":")
    if not host or "/" in host:  # "auto", "local" and "ray://..." do not name a cluster in this form
        return False
    try:
        return port != other_port or socket.gethostbyname(host) != socket.gethostbyname(other_host)
    except OSError:
        return False


def connect(remote: RayCluster, actors: int, processes: int = 1) -> bool:
    """Connects this process to the cluster, unless it is connected; returns whether it was not.

    Args:
        remote: the cluster.
        actors: number of actors of this process.
        processes: number of processes of torchrun, which share the cluster and have as many actors each.

    Raises:
        ConfigError: ray is not installed, no cluster answers, or it has too few processors.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("engine = 'ray' needs ray: pip install 'parl-rl[dist]'") from error
    fresh = not ray.is_initialized()
    # Without an address Ray would join any cluster that another process of this machine has started.
    address = remote.address or os.environ.get("RAY_ADDRESS") or "local"
    if address != "local":
        actors *= processes
    if fresh:
        handler = signal.getsignal(signal.SIGTERM)
        try:
            _check_answers(address)
            ray.init(address=address, include_dashboard=False, log_to_driver=False)
        except (OSError, ValueError) as error:
            raise ConfigError(f"no Ray cluster answers at {address!r}: {error}") from error
        # Ray's own handler would end the process without a checkpoint.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
    elif _differ(address, connected := ray.get_runtime_context().gcs_address):
        warnings.warn(
            f"the Ray address {address!r} has no effect: this process is connected to the Ray cluster at "
            f"{connected}",
            stacklevel=2,
        )
    processors = int(ray.cluster_resources().get("CPU", 0))
    if actors > processors:
        if fresh:
            ray.shutdown()
        raise ConfigError(f"actors = {actors} is above the {processors} processors of the Ray cluster")
    return fresh


def _check_answers(address: str) -> None:
    """Raises an OSError if nothing listens at ``host:port``, where Ray would try again for minutes."""
    import ray

    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not port.isdigit() or "/" in host:
        return
    if host in ("localhost", "127.0.0.1", "::1"):
        host = ray.util.get_node_ip_address()  # as Ray itself does
    socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()


def disconnect() -> None:
    """Closes the connection that :func:`connect` made, and ends the cluster if it was started for it."""
    import ray

    ray.shutdown()


@contextlib.contextmanager
def connection(remote: RayCluster, actors: int, processes: int = 1) -> Generator[None]:
    """Context in which this process is connected: see :func:`connect` and :func:`disconnect`."""
    fresh = connect(remote, actors, processes)
    try:
        yield
    finally:
        if fresh:
            disconnect()


def cluster_cpus(remote: RayCluster) -> int:
    """Number of processors of the cluster."""
    import ray

    with connection(remote, 0):
        return int(ray.cluster_resources().get("CPU", 0))


class WeightsRef:
    """The newest weights in Ray's object store; each version is put there once."""

    def __init__(self, snapshot: SharedWeights) -> None:
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._weights = torch.empty(snapshot.size)
        self._version = -1
        self._reference: Any = None

    @property
    def version(self) -> int:
        """Version of the newest weights."""
        return self._snapshot.version

    def newest(self) -> tuple[Any, int]:
        """Reference to the newest weights, and their version."""
        import ray

        with self._lock:
            version = self._snapshot.read(self._weights, self._version)
            if version != self._version:
                self._reference, self._version = ray.put(self._weights.numpy().copy()), version
            return self._reference, version


class RayProcess:
    """Base class of Ray actors: tells where it runs.

    Its process gets one torch thread and seeds ``random`` and ``numpy.random``, which Ray does not.

    Args:
        setup: the run.
        index: index of the actor.
        resumes: number of resumes of the run so far, and more for an actor that replaces another.
    """

    def __init__(self, setup: RunSetup, index: int, resumes: int = 0) -> None:
        torch.set_num_threads(1)
        seed_modules(actor_seeds(setup.own_seed(resumes), index)[0])

    def process(self) -> tuple[str, int]:
        """Ray's id of the machine, and the id of the process."""
        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()


class SaveableRayProcess(RayProcess):
    """Base class of Ray actors with a state, that of ``_actor``, a :class:`parl.runtime.loop.Saveable`."""

    _actor: Any

    def save(self) -> bytes | str:
        """The state of the actor as bytes, or the reason why it cannot be saved."""
        return state_or_reason(self._actor)


class RayHandle(ABC):
    """One Ray actor in the driver's process; replaced when it fails.

    Args:
        index: index of the actor.

    Attributes:
        failures: failures so far.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.failures = self._consecutive_failures = 0
        self._placement: Any = None
        self._has_warned = False
        self._ray_actor: Any = None

    @property
    def name(self) -> str:
        """The actor's name in messages."""
        return f"actor {self.index}"

    @abstractmethod
    def _make(self) -> tuple[type[RayProcess], tuple[Any, ...]]:
        """Class of the Ray actor, and its arguments."""

    def start(self, processors: int = 1) -> None:
        """Makes the Ray actor on a machine with so many free processors; returns before Ray has placed it."""
        import ray

        made, arguments = self._make()
        kind = ray.remote(num_cpus=processors, max_restarts=0, scheduling_strategy="SPREAD")(made)
        self._ray_actor = kind.remote(*arguments)
        # Returns once Ray has placed and made the actor.
        self._placement = self._ray_actor.process.remote()
        self._processors, self._started_at, self._has_warned = processors, time.monotonic(), False

    def is_placed(self, within_s: float) -> bool:
        """Whether Ray has made the actor within ``within_s`` seconds; failures as in :meth:`get`."""
        import ray
        from ray.exceptions import RayError

        if self._placement is None:
            return True
        try:
            ready, _ = ray.wait([self._placement], timeout=within_s)
            if not ready:
                self.warn_if_late()
                return False
            ray.get(ready[0])
        except RayError as error:
            self._replace(error)
            return False
        self._placement = None
        return True

    @property
    def is_late(self) -> bool:
        """Whether Ray is not known to have made the actor, and has had too long for it."""
        return self._placement is not None and time.monotonic() - self._started_at > _PLACEMENT_S

    def warn_if_late(self) -> None:
        """Logs a warning, once per start, if Ray has not made the actor for too long."""
        import ray

        if self._has_warned or not self.is_late or ray.wait([self._placement], timeout=0.0)[0]:
            return
        self._has_warned = True
        _log.warning(
            "%s waits for a free processor of the Ray cluster, or its environments take long to make",
            self.name,
        )

    def get(self, reference: Any, within_s: float) -> Any:
        """The result of a request; None if it has not arrived within ``within_s`` seconds.

        A failed actor is replaced and its requests are dropped; this increments :attr:`failures`.

        Raises:
            WorkerError: it failed several times in a row.
        """
        import ray
        from ray.exceptions import RayError

        try:
            ready, _ = ray.wait([reference], timeout=within_s)
            if not ready:
                return None
            found = ray.get(ready[0])
        except RayError as error:
            self._replace(error)
            return None
        self._consecutive_failures = 0
        return found

    @property
    def seeds(self) -> int:
        """Number that a replaced actor's seeds differ by."""
        return _SEEDS_PER_RESUME * self.failures

    def _forget(self) -> None:  # noqa: B027
        """Called when the actor has failed, before another one is made; does nothing by default."""

    def _replace(self, error: Exception) -> None:
        import ray

        cause = getattr(error, "cause", None)
        if isinstance(cause, NonFiniteError):
            raise cause  # an error of the environment, which a new actor would repeat
        self._forget()
        self.failures += 1
        self._consecutive_failures += 1
        if self._consecutive_failures >= _FAILURES_MAX:
            raise WorkerError(f"{self.name} failed {self._consecutive_failures} times in a row:\n{error}")
        _log.warning("%s failed and is replaced: %s", self.name, str(error).strip().splitlines()[-1])
        ray.kill(self._ray_actor)
        self.start()

    def process(self) -> tuple[str, int]:
        """See :class:`RayProcess`."""
        import ray

        return ray.get(self._ray_actor.process.remote())

    def close(self) -> None:
        """Ends the Ray actor; safe to call twice."""
        import ray

        actor, self._ray_actor = self._ray_actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)


def actor_failures(handles: Sequence[RayHandle]) -> dict[str, int]:
    """The metric ``actor_failures``: the number of failures of all actors."""
    return {"actor_failures": sum(handle.failures for handle in handles)}
