"""Take the policy out of a run: act with it in one environment, look at its network, write it to a file."""

import os

import gymnasium

import parl

if __name__ == "__main__":
    # Documentation tests set this variable to check that the script runs, not that it learns.
    quick = {"total_steps": "2k", "evaluation_episodes": 5} if os.environ.get("PARL_EXAMPLE_QUICK") else {}

    run = parl.train("ppo", env="CartPole-v1", stop_at_return=475, **quick)
    policy = parl.load(run.path)
    print(policy)

    env = gymnasium.make(policy.env_maker.name, **policy.env_maker.options)
    obs, _ = env.reset(seed=0)
    total, over, state = 0.0, False, None
    while not over:
        action, state = policy.predict(obs, state=state)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    print(f"one episode: return {total:g}")

    for name, parameter in policy.network.named_parameters():
        print(f"{name:30} {tuple(parameter.shape)}")
    policy.export("policy.pt2")  # or policy.onnx, with pip install 'parl-rl[export]'
