"""What an installed wheel must do alike on every machine: prints one line for each part, `name: hash`.

Needs numpy alone; the vector environment also needs gymnasium, and games their ROM files (`ALE_ROMS_DIR`).
Parts whose needs are missing print `name: skipped (why)`. `run.py` compares the lines with `expected.txt`.
Parts that print `ok` in place of a hash check their results: the last bits of their numbers depend on the
processor.

    python tests/wheels/checks.py [--torch]
"""

import argparse
import hashlib
import importlib.util
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import parl

GAMES = ("breakout", "pong", "space_invaders")
FAN_OUTS = (4, 8, 16, 32, 64)
MODES = ("stratified", "independent", "systematic", "without_replacement", "uniform", "largest", "eviction")
FLAGS = {"terminated": ((), "bool"), "truncated": ((), "bool")}
SPEC = {"obs": ((3,), "float32"), "action": ((), "int64"), "reward": ((), "float32"), **FLAGS}


def hash_of(*arrays):
    digest = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def tree():
    parts = []
    for fan_out in FAN_OUTS:
        sums = parl.SumTree(1000, fan_out=fan_out, seed=7)
        numbers = np.random.RandomState(fan_out)
        sums.update(np.arange(1000), numbers.randint(0, 1 << 16, 1000) / 256)
        for mode in MODES:
            parts += sums.sample(100, mode=mode)
        sums.update(numbers.randint(0, 1000, 300), 0.0)
        parts += sums.sample_mixture(64, uniform=0.25)[:2]
        parts.append(np.array([sums.total, sums.max_priority, sums.rng_state], "float64"))
        sums.verify()
    return hash_of(*parts)


def draws(replay, numbers, steps=200):
    """Hash of what a replay samples while rows are added and priorities updated."""
    parts = []
    for step in range(steps):
        rows = numbers.randint(0, 100, (4, 5))
        ended = numbers.randint(0, 20, 4)
        replay.add(
            env_id=np.arange(4),
            obs=rows[:, :3].astype("float32"),
            action=rows[:, 3],
            reward=rows[:, 4].astype("float32"),
            terminated=ended == 0,
            truncated=ended == 1,
        )
        if step % 12 == 11:
            batch = replay.sample(32)
            parts += [batch[name] for name in ("indices", "obs", "action", "reward", "discount", "next_obs")]
            # Importance weights have powers in them, whose last bits may differ between C libraries.
            parts.append(np.round(batch.weights, 4))
            replay.update_priorities(batch.tickets, numbers.randint(1, 1000, 32) / 8)
    replay.verify()
    return hash_of(*parts)


def replay_options():
    return {"n_step": 3, "num_envs": 4, "seed": 3, "alpha": 1.0, "gamma": 0.5}


def replay():
    return draws(parl.PrioritizedReplay(256, SPEC, **replay_options()), np.random.RandomState(1))


def replay_file():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replay.map"
        with parl.PrioritizedReplay(256, SPEC, path=path, **replay_options()) as mapped:
            first = draws(mapped, np.random.RandomState(1), 100)
            mapped.flush()
            mapped.save(Path(folder) / "replay.bin")
        with parl.PrioritizedReplay(256, SPEC, path=path, **replay_options()) as mapped:
            rows = len(mapped)
        loaded = parl.PrioritizedReplay.load(Path(folder) / "replay.bin")
        return (
            f"{first} {hash_of(np.array([rows, len(loaded)]))} {draws(loaded, np.random.RandomState(2), 60)}"
        )


def start_of(pid):
    """Start time of a process in Linux's table of processes."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]


def start_is_wrong():
    """Why processes cannot recognize each other: QEMU tells a process another start of itself than others."""
    if sys.platform != "linux":
        return None
    mine, pid = start_of("self"), os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(start_of(pid) != mine)
    return "the emulator reports wrong starts of processes" if os.waitpid(child, 0)[1] else None


def attach_and_add(name):
    with parl.PrioritizedReplay(256, SPEC, shared=name, **replay_options()) as attached:
        draws(attached, np.random.RandomState(5), 50)


def replay_shared():
    name = f"parl-checks-{os.getpid()}"
    shared = parl.PrioritizedReplay(256, SPEC, shared=name, **replay_options())
    try:
        if hasattr(os, "fork"):
            child = os.fork()
            if child == 0:
                attach_and_add(name)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        else:
            process = multiprocessing.get_context("spawn").Process(target=attach_and_add, args=(name,))
            process.start()
            process.join()
            assert process.exitcode == 0
        assert len(shared) == 200, len(shared)
        return draws(shared, np.random.RandomState(6), 60)
    finally:
        shared.unlink()
        shared.close()


def console(game):
    from parl.atari import Console

    machine = Console(game, seed=11, repeat_action_probability=0.25, sound=True)
    actions = np.random.RandomState(13).randint(0, len(machine.minimal_actions), 1200)
    parts = []
    for frame, action in enumerate(actions):
        parts += [np.array([machine.act(machine.minimal_actions[action])]), machine.ram]
        if frame % 30 == 29:
            parts += [machine.screen, machine.audio]
        if machine.terminated:
            machine.reset()
    return hash_of(*parts)


def vector_env(obs_type):
    games = [GAMES[i % 3] for i in range(8)]
    envs = parl.AtariVectorEnv(games, 8, num_threads=2, obs_type=obs_type, repeat_action_probability=0.25)
    try:
        parts = [envs.reset(seed=17)[0]]
        numbers = np.random.RandomState(19)
        for _ in range(60):
            parts += envs.step(numbers.randint(0, 3, 8))[:4]
        return hash_of(*parts)
    finally:
        envs.close()


def training_without_torch():
    """Learns to walk to the right in a corridor, from a prioritized replay with the Rust core's network."""
    from parl._native import Dense, dense_adam

    numbers, cells, width = np.random.RandomState(23), 6, 16
    sizes = [cells * width, width, width * 2, 2]
    weights, gradients, mean, square = np.zeros((4, sum(sizes)), "float32")
    weights[:] = numbers.uniform(-0.4, 0.4, len(weights))

    def split(flat):
        a, b, c, d = np.split(flat, np.cumsum(sizes)[:-1])
        return a.reshape(width, cells), b, c.reshape(2, width), d

    (w1, b1, w2, b2), (g1, h1, g2, h2) = split(weights), split(gradients)
    network = Dense([(w1, b1, g1, h1)], [(w2, b2, g2, h2)])
    values = np.zeros((32, 2), "float32")
    spec = {"obs": ((cells,), "float32"), "action": ((), "int64"), "reward": ((), "float32"), **FLAGS}
    memory = parl.PrioritizedReplay(512, spec, num_envs=1, seed=29, gamma=0.9, autoreset="same_step")
    eye, place = np.eye(cells, dtype="float32"), 0
    for step in range(1500):
        action = int(numbers.randint(2))
        new = min(max(place + (1 if action else -1), 0), cells - 1)
        end = new == cells - 1
        extra = {"final_obs": eye[[new]]} if end else {}
        memory.add(
            env_id=[0],
            obs=eye[[place]],
            action=[action],
            reward=[np.float32(end)],
            terminated=[end],
            truncated=[False],
            **extra,
        )
        place = 0 if end else new
        if memory.sampleable < 64:
            continue
        batch = memory.sample(32)
        network.forward(np.ascontiguousarray(batch.next_obs), [values], False)
        target = batch.reward + batch.discount * values.max(axis=1)
        obs = np.ascontiguousarray(batch.obs)
        network.forward(obs, [values], True)
        errors = np.zeros_like(values)
        chosen = np.arange(32), batch.action
        errors[chosen] = (values[chosen] - target) / 32
        gradients[:] = 0
        network.backward(obs, [errors])
        dense_adam(weights, gradients, mean, square, step + 1, 5e-3, 1e-8, (0.9, 0.999), float("inf"))
        memory.update_priorities(batch.tickets, np.abs(errors[chosen]) * 32)
    values = np.zeros((cells, 2), "float32")
    network.forward(eye, [values], False)
    assert (values[:-1].argmax(axis=1) == 1).all(), values
    return "ok"


def training():
    """Trains DQN on CartPole-v1 for a moment, with torch, and continues from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        run = parl.train(
            "dqn",
            env="CartPole-v1",
            total_steps=1500,
            runs=folder,
            name="run",
            quiet=True,
            seed=1,
            evaluation_episodes=2,
        )
        assert run.env_steps >= 1500, run
    return "ok"


def needs(*modules, roms=False):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return f"no {', '.join(missing)}"
    return "no ROM files" if roms and not os.environ.get("ALE_ROMS_DIR") else None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", action="store_true", help="also train with torch")
    arguments = parser.parse_args()
    parts = [
        ("tree", None, tree),
        ("replay", None, replay),
        ("replay in a file", None, replay_file),
        ("replay of two processes", start_is_wrong(), replay_shared),
        *((f"console {game}", needs(roms=True), lambda game=game: console(game)) for game in GAMES),
        *(
            (f"vector environment {kind}", needs("gymnasium", roms=True), lambda kind=kind: vector_env(kind))
            for kind in ("gray", "rgb", "ram")
        ),
        ("training without torch", None, training_without_torch),
    ]
    if arguments.torch:
        parts.append(("training", needs("torch", "gymnasium"), training))
    print(f"parl {parl.__version__} in {Path(parl.__file__).parent}", file=sys.stderr)
    for name, missing, function in parts:
        print(f"{name}: {f'skipped ({missing})' if missing else function()}", flush=True)


if __name__ == "__main__":
    main()
