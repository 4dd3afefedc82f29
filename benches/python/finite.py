"""Time of the checks for NaN and infinity, and as a share of the step that they are part of.

    python benches/python/finite.py
    python benches/python/finite.py --repeats 30

The share is the median processor time of the checks of one step divided by that of the step, measured in
turns in one thread of this process. Steps: a vector step of DQN's actor, a rollout of PPO (``CartPole-v1``, 8
environments), the learning of PPO and A2C from a rollout, an update of DQN (batch 64) and one of SAC
(``Pendulum-v1``, batch 256), with parl's default settings.
"""

import argparse
import statistics
import time
from types import SimpleNamespace

import numpy as np


def timed(work, count):
    began = time.thread_time()
    for _ in range(count):
        work()
    return (time.thread_time() - began) / count


def in_turns(first, second, repeats, counts):
    """Median seconds per call of each function, and quartiles and median of their ratio."""
    times = [(timed(first, counts[0]), timed(second, counts[1])) for _ in range(repeats)]
    shares = sorted(one / other for one, other in times)
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return *medians, shares[len(shares) // 4], statistics.median(shares), shares[3 * len(shares) // 4]


def parts(name, env, num_envs):
    from parl.envs import EnvMaker, spec_of
    from parl.train.registry import make_algorithm
    from parl.train.settings import default_settings

    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    config, settings = default_settings(name, spec, None)
    return SimpleNamespace(
        maker=maker, spec=spec, config=config, algorithm=make_algorithm(name, settings, spec), envs=num_envs
    )


def replay_and_actor(made):
    from parl.replay import PrioritizedReplay
    from parl.runtime.off_policy.actor import make_actor

    spec = made.spec
    columns = {
        "obs": (spec.observation_shape, spec.observation_dtype),
        "action": (spec.action_shape, spec.action_dtype),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
    replay = PrioritizedReplay(50_000, columns, num_envs=made.envs, **made.algorithm.replay_options())
    return replay, make_actor(made.maker, spec, made.algorithm, replay, 0, 1, made.envs, 0)


def cases():
    """Yields the name of a step, its checks, the step, and the numbers of calls of both per round."""
    from parl.envs import FiniteCheck
    from parl.ops.finite import check_update
    from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer

    dqn = parts("dqn", "CartPole-v1", 8)
    replay, actor = replay_and_actor(dqn)
    check, reward, obs = FiniteCheck(dqn.spec), np.ones(8, np.float32), np.ones((8, 4), np.float32)

    def collected():
        check.rewards(reward, 0)
        check.observations(obs, 0)

    yield "dqn: vector step of an actor", collected, lambda: actor.step(10**9), (2_000, 300)
    ppo = parts("ppo", "CartPole-v1", 8)
    policy = ppo.algorithm.make_policy(0, 1, 8, 0)
    rollouts = RolloutActor(ppo.maker(8), ppo.spec, policy, 0)
    steps = ppo.algorithm.rollout_steps
    buffer = RolloutBuffer(ppo.spec, steps, 8)

    def rollout_checks():
        for _ in range(steps):
            collected()

    yield f"ppo: rollout of {steps} steps", rollout_checks, lambda: rollouts.collect(buffer, 0), (60, 10)
    for _ in range(300):
        actor.step(10**9)
    learner = dqn.algorithm.make_learner(0, "cpu")
    size = 64
    batch = replay.sample(size, as_torch=True)
    priorities = np.ones(size, np.float32)

    def update():
        learner.compute(batch)
        learner.step()

    yield "dqn: update of 64", lambda: check_update(priorities, loss=0.5), update, (2_000, 100)
    sac = parts("sac", "Pendulum-v1", 8)
    sac_replay, sac_actor = replay_and_actor(sac)
    for _ in range(100):
        sac_actor.step(10**9)
    sac_learner = sac.algorithm.make_learner(0, "cpu")
    sac_batch = sac_replay.sample(256, as_torch=True)
    sac_learner.compute(sac_batch)
    many, one = np.ones(256, np.float32), np.float32(0.5)

    def sac_update():
        sac_learner.compute(sac_batch)
        sac_learner.step()

    yield (
        "sac: update of 256",
        lambda: check_update(many, critic_loss=one, actor_loss=one),
        sac_update,
        (2_000, 20),
    )
    for name, made in (("ppo", ppo), ("a2c", parts("a2c", "CartPole-v1", 8))):
        learner = made.algorithm.make_learner(0, "cpu")
        buffer = RolloutBuffer(made.spec, made.algorithm.rollout_steps, 8)
        policy = made.algorithm.make_policy(0, 1, 8, 0)
        RolloutActor(made.maker(8), made.spec, policy, 0).collect(buffer, 0)

        def learn(learner=learner, buffer=buffer):
            learner.learn(buffer.tensors(), 0.0, lambda _: None)

        learn()
        yield f"{name}: learning from a rollout", learner._check_finite, learn, (500, 5)


def main():
    import torch

    from parl._native import all_finite

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print("| array | all_finite | np.isfinite(x).all() |\n|---|---|---|")
    for count in (8, 32, 1_024, 16_384, 225_792):
        rows = np.ones(count, np.float32)
        turns = max(10, 2_000_000 // (count + 500))
        ours, numpys, *_ = in_turns(
            lambda rows=rows: all_finite(rows),
            lambda rows=rows: np.isfinite(rows).all(),
            repeats,
            (turns, turns),
        )
        print(f"| {count:,} float32 | {ours * 1e6:.2f} us | {numpys * 1e6:.2f} us |")
    print("\n| step | its checks | the step | share (quartiles) |\n|---|---|---|---|")
    for name, checks, step, counts in cases():
        for _ in range(2):
            step()
        ours, whole, low, share, high = in_turns(checks, step, repeats, counts)
        shown = f"{share:.2%} ({low:.2%}..{high:.2%})"
        print(f"| {name} | {ours * 1e6:.2f} us | {whole * 1e6:.1f} us | {shown} |", flush=True)


if __name__ == "__main__":
    main()
