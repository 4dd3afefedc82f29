"""Train double DQN on CartPole-v1 with actors and learners in processes, then evaluate it."""

import os

import parl

if __name__ == "__main__":
    # Documentation tests set this variable to check that the script runs, not that it learns.
    quick = {"total_steps": "3k", "evaluation_episodes": 5} if os.environ.get("PARL_EXAMPLE_QUICK") else {}

    run = parl.train("dqn", env="CartPole-v1", actors=2, learners=2, stop_at_return=475, **quick)
    print(f"{run.stopped} after {run.env_steps:,} steps and {run.training_s:.1f} s: {run.path}")

    returns = parl.evaluate(run.path, episodes=20)
    print(f"20 greedy episodes on fresh seeds: mean {returns.mean():.1f}, lowest {returns.min():.0f}")
