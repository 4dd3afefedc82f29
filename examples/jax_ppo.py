"""PPO in JAX on an Atari game: environments, networks and updates in one compiled program, on the CPU.

python examples/jax_ppo.py [GAME] [--observations memory | images] [--total-steps 4e6] [--seed 0]

`parl.jax.make` gives the environments as pure functions. An iteration acts for some steps in a `lax.scan`
and then makes the updates, all in one call of `jax.jit`. Adam, the networks and the normalization of the
memory are written out, so that JAX is all it needs: `pip install 'parl-rl[jax]'`.

With `--observations memory` the policy sees the 128 bytes of the console and their changes since the step
before; with `images` stacks of four gray images.

Sources: Schulman, Wolski, Dhariwal, Radford, Klimov (2017), "Proximal Policy Optimization Algorithms"; for
images the network of Mnih et al. (2015).
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import parl.jax

Array = jax.Array
Params = dict[str, Any]

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, MAX_NORM = 0.99, 0.95, 0.2, 0.01, 0.5
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Channels, size and stride.
# An episode that ends is reset within the step, so that each observation is one to act on.
OPTIONS: dict[str, dict[str, Any]] = {
    "memory": {"obs_type": "ram", "stack_num": 2, "padding": "reset", "autoreset_mode": "SameStep"},
    "images": {"autoreset_mode": "SameStep"},
}


class Training(NamedTuple):
    """All that an iteration changes."""

    params: Params
    adam: tuple[Params, Params, Array]  # Averages of gradients and of their squares, number of updates.
    moments: tuple[Array, Array, Array]  # Number of features seen, their mean, the sum of squared deviations.
    env: parl.jax.State
    key: Array


# ---------------------------------------------------------------------- networks


def features(obs: Array) -> Array:
    """Memory (..., 2, 128) as the bytes and their changes (..., 256), images (..., 4, 84, 84) as 0 to 1."""
    scaled = obs.astype(jnp.float32) / 255
    if obs.shape[-1] != 128:
        return scaled
    return jnp.concatenate([scaled[..., 1, :], scaled[..., 1, :] - scaled[..., 0, :]], -1)


def dense(key: Array, inputs: int, outputs: int, scale: float) -> Params:
    return {"w": jax.nn.initializers.orthogonal(scale)(key, (inputs, outputs)), "b": jnp.zeros(outputs)}


def new_params(key: Array, obs_shape: tuple[int, ...], actions: int) -> Params:
    keys = iter(jax.random.split(key, 8))
    params: Params = {"convolutions": []}
    if obs_shape[-1] == 128:
        torso = [dense(next(keys), 256, 128, 2**0.5), dense(next(keys), 128, 128, 2**0.5)]
    else:
        channels = obs_shape[0]
        for outputs, size, _ in CONVOLUTIONS:
            init = jax.nn.initializers.orthogonal(2**0.5)(next(keys), (outputs, channels * size * size))
            w = init.reshape(outputs, channels, size, size)
            params["convolutions"].append({"w": w, "b": jnp.zeros((outputs, 1, 1))})
            channels = outputs
        torso = [dense(next(keys), 3_136, 512, 2**0.5)]
    width = torso[-1]["b"].size
    return {
        **params,
        "torso": torso,
        "policy": dense(next(keys), width, actions, 0.01),
        "value": dense(next(keys), width, 1, 1.0),
    }


def network(params: Params, x: Array) -> tuple[Array, Array]:
    """Logarithms of the probabilities of actions (B, A), and values (B,), of features (B, ...)."""
    for layer, (_, _, stride) in zip(params["convolutions"], CONVOLUTIONS, strict=False):
        x = jax.nn.relu(lax.conv(x, layer["w"], (stride, stride), "VALID") + layer["b"])
    x = x.reshape(len(x), -1)
    for layer in params["torso"]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ params["policy"]["w"] + params["policy"]["b"]
    return jax.nn.log_softmax(logits), (x @ params["value"]["w"] + params["value"]["b"])[:, 0]


# ---------------------------------------------------------------------- updates


def normalized(x: Array, moments: tuple[Array, Array, Array]) -> Array:
    """The features of memory with mean 0 and deviation 1; images as they are."""
    count, mean, deviations = moments
    return x if x.ndim > 2 else jnp.clip((x - mean) / jnp.sqrt(deviations / count + 1e-8), -10, 10)


def add_moments(moments: tuple[Array, Array, Array], x: Array) -> tuple[Array, Array, Array]:
    """Adds features (T, B, 256) to the moments. Source: Chan, Golub, LeVeque (1983)."""
    if x.ndim > 3:
        return moments
    x = x.reshape(-1, x.shape[-1])
    count, mean, deviations = moments
    delta, total = x.mean(0) - mean, count + len(x)
    deviations = deviations + ((x - x.mean(0)) ** 2).sum(0) + delta**2 * (count * len(x) / total)
    return total, mean + delta * (len(x) / total), deviations


def advantages(rewards: Array, values: Array, ends: Array, last_value: Array) -> Array:
    """Generalized advantage estimates (T, B). Source: Schulman et al. (2016), arXiv:1506.02438."""

    def one_step(
        carry: tuple[Array, Array], row: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        following, next_value = carry
        reward, value, goes_on = row
        error = reward + GAMMA * goes_on * next_value - value
        advantage = error + GAMMA * GAE_LAMBDA * goes_on * following
        return (advantage, value), advantage

    rows = (rewards, values, 1.0 - ends)
    return lax.scan(one_step, (jnp.zeros_like(last_value), last_value), rows, reverse=True)[1]


def loss(params: Params, batch: tuple[Array, ...]) -> Array:
    x, actions, old_log_probs, advantage, returns = batch
    log_probs, values = network(params, x)
    ratio = jnp.exp(jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0] - old_log_probs)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
    entropy = -(jnp.exp(log_probs) * log_probs).sum(1).mean()
    value_loss = ((values - returns) ** 2).mean()
    return -jnp.minimum(ratio * advantage, clipped).mean() + 0.25 * value_loss - ENTROPY * entropy


def adam(params: Params, state: Any, gradients: Params, learning_rate: Array) -> tuple[Params, Any]:
    """One update. Source: Kingma, Ba (2015), arXiv:1412.6980."""
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_NORM / (norm + 1e-6)), gradients)
    first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, gradients)
    rate = learning_rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-5), params, first, second)
    return params, (first, second, count)


def iterate(
    env: parl.jax.AtariEnv,
    steps: int,
    epochs: int,
    minibatches: int,
    training: Training,
    learning_rate: Array,
) -> tuple[Training, tuple[Array, Array]]:
    """Acts for some steps and updates the network; returns the sum of returns and the number of episodes."""
    params, moments = training.params, training.moments

    def act(carry: tuple[Any, Array], _: None) -> tuple[tuple[Any, Array], tuple[Array, ...]]:
        state, key = carry
        key, now = jax.random.split(key)
        x = features(state.obs)
        log_probs, values = network(params, normalized(x, moments))
        actions = jax.random.categorical(now, log_probs)
        chosen = jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0]
        state, _, reward, terminated, truncated, info = env.step(state, actions)
        ends = (terminated | truncated).astype(jnp.float32)
        returns = jnp.where(info["ended"], info["episode_return"], 0).sum()
        row = (x, actions, chosen, values, reward.astype(jnp.float32), ends, returns, info["ended"].sum())
        return (state, key), row

    (state, key), rows = lax.scan(act, (training.env, training.key), None, steps)
    x, actions, log_probs, values, rewards, ends, returns, ended = rows
    _, last_value = network(params, normalized(features(state.obs), moments))
    advantage = advantages(rewards, values, ends, last_value)
    whole = (jax.vmap(lambda x: normalized(x, moments))(x), actions, log_probs, advantage, advantage + values)
    whole = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), whole)

    def update(carry: tuple[Params, Any], rows: Array) -> tuple[tuple[Params, Any], None]:
        gradients = jax.grad(loss)(carry[0], jax.tree.map(lambda a: a[rows], whole))
        return adam(*carry, gradients, learning_rate), None

    key, *keys = jax.random.split(key, epochs + 1)
    orders = jnp.stack([jax.random.permutation(one, len(whole[1])) for one in keys])
    (params, optimizer), _ = lax.scan(
        update, (params, training.adam), orders.reshape(epochs * minibatches, -1)
    )
    new = Training(params, optimizer, add_moments(moments, x), state, key)
    return new, (returns.sum(), ended.sum())


# ---------------------------------------------------------------------- training


def start(env: parl.jax.AtariEnv, seed: int) -> Training:
    key, for_params, for_env = jax.random.split(jax.random.key(seed), 3)
    params = new_params(for_params, env.obs_shape, env.num_actions)
    zeros = jax.tree.map(jnp.zeros_like, params)
    moments = (jnp.float32(1e-4), jnp.zeros(256), jnp.full(256, 1e-4))
    optimizer = (zeros, jax.tree.map(jnp.copy, zeros), jnp.int32(0))
    return Training(params, optimizer, moments, env.reset(for_env)[0], key)


def train(
    game: str,
    observations: str,
    iterations: int,
    num_envs: int,
    steps: int,
    *,
    seed: int = 0,
    epochs: int = 4,
    minibatches: int = 8,
    learning_rate: float = 1e-3,
    verbose: bool = True,
) -> tuple[Training, list[float]]:
    """Trains and returns the last state and, per iteration with ends of episodes, their mean return."""
    env = parl.jax.make(game, num_envs, **OPTIONS[observations])
    one = jax.jit(functools.partial(iterate, env, steps, epochs, minibatches), donate_argnums=0)
    training, means, began = start(env, seed), [], time.monotonic()
    for i in range(iterations):
        training, (returns, episodes) = one(training, learning_rate * (1 - i / iterations))
        if episodes > 0:
            means.append(float(returns) / int(episodes))
        if verbose and (i % max(1, iterations // 50) == 0 or i == iterations - 1):
            done, seconds = (i + 1) * num_envs * steps, time.monotonic() - began
            recent = f"{sum(means[-10:]) / len(means[-10:]):8.2f}" if means else "       -"
            print(f"{done:11,} steps {seconds:7.1f} s {done / seconds:8,.0f}/s  return {recent}", flush=True)
    return training, means


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", nargs="?", default="pong")
    parser.add_argument("--observations", choices=sorted(OPTIONS), default="memory")
    parser.add_argument("--total-steps", type=float, default=1_024 if quick else 4e6)
    parser.add_argument("--num-envs", type=int, default=8 if quick else 64)
    parser.add_argument("--steps", type=int, default=16 if quick else 64, help="of an iteration")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    iterations = max(1, int(options.total_steps) // (options.num_envs * options.steps))
    train(
        options.game,
        options.observations,
        iterations,
        options.num_envs,
        options.steps,
        seed=options.seed,
        learning_rate=1e-3 if options.observations == "memory" else 2.5e-4,
    )


if __name__ == "__main__":
    main()
