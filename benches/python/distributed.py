"""Unit costs of runs over several machines, on this machine over loopback.

    python benches/python/distributed.py rows --nodes 2 --record      # off-policy rows over Ray
    python benches/python/distributed.py rollouts --nodes 2 --record  # rollouts over Ray
    python benches/python/distributed.py learners --record            # updates, which may be on a GPU
    python benches/python/distributed.py weights --record             # weights to another node
    python benches/python/distributed.py members --record             # weights of members of a population
    python benches/python/distributed.py gradients --record           # gradients averaged by gloo

Each node is a Ray node with one processor and one actor. ``rows`` and ``rollouts`` send requests for a while:
two at a time to each actor, as a run does, then one at a time. An actor measures how long it collects.
Transport is the rest of a request's time when there is one request at a time: serialization, the network, and
what the driver does with the result. The driver's processor time per transition limits what one learner's
process can receive from any number of actors.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1]))
from parl.algos.common.population import noise
from parl.algos.dqn import DQN
from parl.algos.dqn import Config as DQNConfig
from parl.algos.impala import IMPALA
from parl.algos.impala import Config as IMPALAConfig
from parl.algos.ppo import PPO
from parl.algos.ppo import Config as PPOConfig
from parl.envs import EnvMaker, spec_of
from parl.runtime.distributed.ray_actors import RayActor, RayActorHandle, RolloutResult
from parl.runtime.distributed.ray_cluster import RayCluster, WeightsRef
from parl.runtime.distributed.ray_rollouts import RayRollout, RayRolloutActor, RayRolloutHandle
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.weights import SharedWeights
from record import Record, add_option, version_of

CLAIM = "distributed"
ENVS = {"CartPole-v1": 16, "parl/Pong-v0": 16}
"""Environments per actor."""
# Weights: a small network, that of the Nature DQN, a large one.
SIZES = (10_000, 1_700_000, 20_000_000)


def cluster(nodes: int) -> Callable[[], None]:
    """Connects to a new cluster of so many nodes on this machine; returns a function that ends it."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_worker_niceness", "0")
    made = Cluster(initialize_head=False)
    for _ in range(nodes):
        made.add_node(num_cpus=1, object_store_memory=400 * 2**20, include_dashboard=False)
    ray.init(address=made.address, log_to_driver=False)

    def end() -> None:
        ray.shutdown()
        made.shutdown()

    return end


class TimedActor(RayActor):
    """As :class:`RayActor`; its version is the seconds of collection: wall, processor."""

    def collect(self, *arguments: Any) -> RolloutResult:
        started, used = time.perf_counter(), time.process_time()
        found = super().collect(*arguments)
        took: Any = (time.perf_counter() - started, time.process_time() - used)
        return dataclasses.replace(found, version=took)


class TimedRolloutActor(RayRolloutActor):
    """As :class:`RayRolloutActor`; its version is the seconds of collection: wall, processor."""

    def collect(self, *arguments: Any) -> RayRollout:
        started, used = time.perf_counter(), time.process_time()
        found = super().collect(*arguments)
        took: Any = (time.perf_counter() - started, time.process_time() - used)
        return dataclasses.replace(found, version=took)


class TimedHandle(RayActorHandle):
    def _make(self) -> Any:
        return TimedActor, super()._make()[1]


class TimedRolloutHandle(RayRolloutHandle):
    def _make(self) -> Any:
        return TimedRolloutActor, super()._make()[1]


def off_policy(env: str, nodes: int) -> tuple[list[Any], Callable[[Any, Any], None], int, int]:
    """Handles, what the driver does with a result, transitions of a result, and their bytes."""
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    algorithm = DQN(DQNConfig(n_step=3, initial_priority="td", prioritized=True), spec)
    num_envs, steps = ENVS[env] * nodes, 16
    setup = OffPolicySetup(
        algorithm=algorithm,
        maker=maker,
        spec=spec,
        seed=0,
        num_envs=num_envs,
        actors=nodes,
        learners=1,
        batch_size=32,
        replay_capacity=20_000,
        pacer=Pacer(1.0, 32, num_envs, 10**9, 10**9),
        remote=RayCluster(None, steps),
    )
    weights, replay = published(setup), setup.make_replay(None)
    handles = [TimedHandle(setup, index, 0, None, weights) for index in range(nodes)]
    size = sum(np.asarray(part).nbytes for part in columns(example(setup, steps)))
    for handle in handles:
        handle.ask = lambda handle=handle: handle.send_request(0, steps)
    return handles, lambda handle, found: handle.write(found, replay), ENVS[env] * steps, size


def example(setup: OffPolicySetup, steps: int) -> dict[str, Any]:
    """Rows of one request, collected in this process."""
    weights = setup.make_learner().weights
    return RayActor(setup, 0, 0, None).collect(weights.numpy(), 0, 0, steps).rows


def columns(rows: dict[str, Any]) -> Iterator[Any]:
    for column in rows.values():
        yield from columns(column) if isinstance(column, dict) else [column]


def on_policy(env: str, nodes: int) -> tuple[list[Any], Callable[[Any, Any], None], int, int]:
    """As :func:`off_policy`."""
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    setup = RolloutSetup(
        algorithm=IMPALA(IMPALAConfig(), spec),
        maker=maker,
        spec=spec,
        seed=0,
        num_envs=ENVS[env] * nodes,
        actors=nodes,
        total_steps=10**9,
        remote=RayCluster(None),
    )
    weights, buffer = published(setup), setup.make_buffer(0)
    handles = [TimedRolloutHandle(setup, index, 0, weights, False) for index in range(nodes)]
    for handle in handles:
        handle.start()
        handle.ask = lambda handle=handle: handle.send_request(0, 0)
    transitions = ENVS[env] * setup.algorithm.rollout_steps
    return handles, lambda handle, found: buffer.fill(found[1].content), transitions, buffer.content.nbytes


def published(setup: Any) -> WeightsRef:
    learner = setup.make_learner()
    shared = SharedWeights(multiprocessing.get_context(), len(learner.weights))
    shared.publish(learner.weights)
    return WeightsRef(shared)


def request_for(handles: list[Any], write: Callable[[Any, Any], None], at_once: int, seconds: float) -> Any:
    """Keeps ``at_once`` requests open for ``seconds``.

    Returns:
        Number of results; seconds of the wall clock; of the actors' collection, wall and processor; of the
        driver's processor.
    """
    for handle in handles:
        for _ in range(at_once):
            handle.ask()
    results, collecting, acting = 0, 0.0, 0.0
    began, used, end = time.perf_counter(), time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for handle in handles:
            found = handle.result(0.001)
            if found is None:
                continue
            result = found[1] if isinstance(found, tuple) else found
            collecting += result.version[0]
            acting += result.version[1]
            write(handle, found)
            results += 1
            handle.ask()
    wall, used = time.perf_counter() - began, time.process_time() - used
    for handle in handles:
        for _ in range(at_once):
            while (found := handle.result(10.0)) is None:
                pass
            write(handle, found)
    return results, wall, collecting, acting, used


def transport(kind: str, nodes: int, rounds: int, seconds: float, record: Record) -> None:
    """Transitions a second over Ray, the share of transport, the driver's time per transition."""
    end = cluster(nodes)
    for env in ENVS:
        handles, write, transitions, size = (off_policy if kind == "rows" else on_policy)(env, nodes)
        for handle in handles:
            while not handle.is_placed(10.0):
                pass
        request_for(handles, write, 1, 1.0)
        rates: list[float] = []
        shares: list[float] = []
        costs: list[float] = []
        acts: list[float] = []
        for _ in range(rounds):
            results, wall, _, acting, used = request_for(handles, write, 2, seconds)
            rates.append(results * transitions / wall)
            costs.append(used / (results * transitions) * 1e6)
            acts.append(acting / (results * transitions) * 1e6)
            results, wall, collecting, _, _ = request_for(handles, write, 1, seconds)
            shares.append(1 - collecting / (wall * nodes))
        for handle in handles:
            handle.close()
        case = f"{kind} of {env}, {nodes} node{'s' * (nodes > 1)}"
        about = {
            "rounds": rounds,
            "threads": nodes,
            "version": version_of("ray"),
            "conditions": f"{ENVS[env]} environments per actor",
        }
        for metric, unit, values in (
            ("transitions per second", "1/s", rates),
            ("share of transport", "of the time", shares),
            ("actor's time per transition", "us", acts),
            ("driver's time per transition", "us", costs),
            ("bytes per transition", "B", [size / transitions]),
        ):
            record.add(CLAIM, case, metric, unit, values, **about)
            record.print(f"{case}: {metric} {statistics.median(values):,.4g} {unit}")
    end()


def weights(rounds: int, record: Record) -> None:
    """Milliseconds to put weights, and until an actor on another node has them."""
    import ray

    end = cluster(2)

    class Reader:
        def read(self, found: Any) -> float:
            return float(np.array(found)[0])

    reader = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Reader)
    readers = [reader.remote() for _ in range(2)]
    ray.get([one.read.remote(np.zeros(1, np.float32)) for one in readers])
    for size in SIZES:
        puts: list[float] = []
        reads: list[float] = []
        values = np.zeros(size, np.float32)
        for number in range(rounds):
            values[0] = number
            started = time.perf_counter()
            reference = ray.put(values)
            puts.append((time.perf_counter() - started) * 1e3)
            assert ray.get([one.read.remote(reference) for one in readers]) == [number] * 2
            reads.append((time.perf_counter() - started) * 1e3)
        case = f"{size:,} weights"
        for metric, found in (("time of put", puts), ("time until two nodes have them", reads)):
            record.add(CLAIM, case, metric, "ms", found, rounds=rounds, version=version_of("ray"))
            record.print(f"{case}: {metric} {statistics.median(found):.3g} ms")
    end()


def members(rounds: int, record: Record) -> None:
    """Nanoseconds per weight that ES's learner draws and adds for each member."""
    for size in SIZES[:2]:
        times: list[float] = []
        ranks, rows = np.ones(16, np.float32), torch.empty(16, size)
        for number in range(rounds):
            started = time.process_time()
            for index, row in enumerate(rows):
                noise(number * 16 + index, size, row)
            torch.mv(rows.T, torch.from_numpy(ranks))
            times.append((time.process_time() - started) / (16 * size) * 1e9)
        case = f"members of {size:,} weights"
        record.add(CLAIM, case, "learner's time per weight", "ns", times, rounds=rounds, threads=1)
        record.print(f"{case}: {statistics.median(times):.3g} ns per weight")


def learners(rounds: int, record: Record, device: str) -> None:
    """Microseconds per transition that learners take for their updates, with one thread on a CPU."""
    maker = EnvMaker("parl/Pong-v0")
    spec = spec_of(maker(1))
    cases = (("impala", IMPALA(IMPALAConfig(), spec)), ("ppo", PPO(PPOConfig(), spec)))
    for name, algorithm in cases:
        setup = RolloutSetup(
            algorithm=algorithm, maker=maker, spec=spec, seed=0, num_envs=16, total_steps=10**9, device=device
        )
        actor, buffer, learner = setup.make_actor(0, 0), setup.make_buffer(0), setup.make_learner()
        actor.policy.weights.copy_(learner.weights)
        actor.collect(buffer, 0)
        times: list[float] = []
        for number in range(rounds + 1):
            started = time.perf_counter() if device != "cpu" else time.process_time()
            learner.learn(buffer.tensors(), 0.0, lambda gradients: None)
            float(learner.weights[0])  # waits for the device
            now = time.perf_counter() if device != "cpu" else time.process_time()
            if number:
                times.append((now - started) / buffer.reward.size * 1e6)
        case = f"{name} on parl/Pong-v0, {device}"
        record.add(CLAIM, case, "learner's time per transition", "us", times, rounds=rounds, threads=1)
        record.print(f"{case}: {statistics.median(times):.4g} us per transition")


def _averager(rank: int, processes: int, port: int, rounds: int, queue: Any) -> None:
    from parl.runtime.distributed.group import Group
    from parl.runtime.distributed.torchrun import TorchrunAllReduce

    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank)}
    group = Group(rank, processes, rank, processes)
    group.connect("cpu")
    found: dict[int, list[float]] = {}
    for size in SIZES:
        gradients = torch.ones(size)
        allreduce = TorchrunAllReduce(group, "cpu")
        times = []
        for _ in range(rounds + 2):
            started = time.perf_counter()
            assert allreduce.average(gradients, True)
            times.append((time.perf_counter() - started) * 1e3)
        assert float(gradients[0]) == 1.0
        found[size] = times[2:]
    if rank == 0:
        queue.put(found)
    group.disconnect()


def gradients(rounds: int, record: Record) -> None:
    """Milliseconds to average gradients by gloo, with one and two processes."""
    context = multiprocessing.get_context("spawn")
    for processes in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        queue = context.Queue()
        running = [
            context.Process(target=_averager, args=(rank, processes, port, rounds, queue))
            for rank in range(processes)
        ]
        for process in running:
            process.start()
        found = queue.get()
        for process in running:
            process.join()
        for size, times in found.items():
            case = f"{size:,} gradients, {processes} process{'es' * (processes > 1)}"
            given = {"rounds": rounds, "threads": processes, "version": version_of("torch")}
            record.add(CLAIM, case, "time to average", "ms", times, spread="quartiles", **given)
            record.print(f"{case}: {statistics.median(times):.3g} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["rows", "rollouts", "learners", "weights", "members", "gradients"])
    parser.add_argument("--device", default="cpu", help="device of the learners")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    add_option(parser, "distributed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    loaded = f"load average {os.getloadavg()[0]:.1f} before the start"
    with Record(given.record, "Unit costs of runs over several machines", loaded) as record:
        record.print(loaded)
        if given.part in ("rows", "rollouts"):
            transport(given.part, given.nodes, given.rounds, given.seconds, record)
        elif given.part == "learners":
            learners(given.rounds, record, given.device)
        else:
            {"weights": weights, "members": members, "gradients": gradients}[given.part](given.rounds, record)


if __name__ == "__main__":
    main()
