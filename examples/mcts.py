"""Monte Carlo tree search (UCT) on any Atari game, by `AtariVectorEnv.branch`.

python examples/mcts.py [game] [--simulations 200] [--steps 500]

Before each step of the game, a tree is grown from the console's state. A simulation walks from the root to a
leaf by the upper confidence bound, adds all children of the leaf with one call of `branch`, and plays random
actions from each child with another one, in which no frame is drawn. The discounted return of a playout is
added to the values of all nodes on the way. `--batch` simulations walk at the same time, each one past the
leaves of the others. Then the action that was visited most is played, and its subtree is kept.

Source: Kocsis and Szepesvari (2006), "Bandit based Monte-Carlo planning"; Bellemare, Naddaf, Veness, Bowling
(2013), "The Arcade Learning Environment", section 4.2.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

import numpy as np

import parl

DISCOUNT = 0.99
EXPLORATION = 0.5


class Node:
    """A state of the console.

    `value` is the sum of the discounted returns from its parent's state on, over `visits` playouts; `last` is
    its state, None if the episode has ended, after which there is nothing to expand.
    """

    __slots__ = ("children", "last", "reward", "value", "visits")

    def __init__(self, last: Any, reward: float) -> None:
        self.last, self.reward = last, reward
        self.value, self.visits = 0.0, 0
        self.children: list[Node] = []


class Search:
    """A tree of one game.

    Args:
        envs: whatever has `branch(states, actions, observe=False)`.
        state: the root's state, as row of `get_state`.
        num_actions: number of actions A.
        playout: steps of a playout.
        batch: number of simulations that walk at the same time.
        seed: seed of the playouts.
    """

    def __init__(
        self, envs: Any, state: Any, num_actions: int, *, playout: int = 20, batch: int = 8, seed: int = 0
    ) -> None:
        self.envs, self.num_actions, self.playout, self.batch = envs, num_actions, playout, batch
        self.rng = np.random.default_rng(seed)
        self.root = Node(state, 0.0)
        # Smallest and largest mean value so far, for a bound that does not depend on the size of rewards.
        self.low, self.high = math.inf, -math.inf
        self.steps = 0

    def simulate(self, simulations: int) -> None:
        """Grows the tree until about `simulations` leaves have been expanded."""
        for _ in range(-(-simulations // self.batch)):
            paths = [self._walk() for _ in range(self.batch)]
            leaves: dict[int, list[Node]] = {}
            for path in paths:
                if path[-1].last is None:
                    self._back_up(path, 0.0, 0)  # Nothing follows the end; the virtual visit is a real one.
                elif id(path[-1]) in leaves:
                    for node in path:  # Another path has the same leaf.
                        node.visits -= 1
                else:
                    leaves[id(path[-1])] = path
            self._expand(list(leaves.values()))

    def _walk(self) -> list[Node]:
        """A path from the root to a leaf, whose nodes get a virtual visit."""
        path = [self.root]
        while path[-1].children:
            node = path[-1]
            spread = self.high - self.low
            scale = 1.0 / spread if spread > 0.0 else 1.0
            logarithm = math.log(node.visits + 1)

            def bound(child: Node, scale: float = scale, logarithm: float = logarithm) -> float:
                if child.visits == 0:
                    return math.inf
                mean = (child.value / child.visits - self.low) * scale
                return mean + EXPLORATION * math.sqrt(logarithm / child.visits)

            path.append(max(node.children, key=bound))
        for node in path:
            node.visits += 1
        return path

    def _expand(self, paths: list[list[Node]]) -> None:
        """Adds all children of the last node of each path, and plays from each child."""
        if not paths:
            return
        leaves, actions = [path[-1] for path in paths], self.num_actions
        each = np.tile(np.arange(actions)[:, None], (len(leaves), 1, 1))
        states = np.stack([leaf.last for leaf in leaves])
        result = self.envs.branch(states, each, observe=False)
        ended = result.terminated | result.truncated
        after = result.states.reshape(len(leaves) * actions, *result.states.shape[2:])
        random = self.rng.integers(actions, size=(len(after), 1, self.playout))
        ends = self.envs.branch(after, random, observe=False)
        self.steps += int(result.lengths.sum() + ends.lengths.sum())
        # The playout's reward is discounted as if it came in its middle: branch returns its sum.
        later = ends.raw_rewards.reshape(len(leaves), actions) * DISCOUNT ** (self.playout / 2)
        for i, (path, leaf) in enumerate(zip(paths, leaves, strict=True)):
            for a in range(actions):
                leaf.children.append(
                    Node(None if ended[i, a] else result.states[i, a], float(result.raw_rewards[i, a]))
                )
                self._back_up([*path, leaf.children[a]], float(later[i, a]), 1)
            for node in path:  # The visits of its children replace the virtual visit.
                node.visits -= 1

    def _back_up(self, path: list[Node], value: float, visits: int) -> None:
        for node in reversed(path):
            value = node.reward + DISCOUNT * value
            node.value += value
            node.visits += visits
            mean = node.value / max(node.visits, 1)
            self.low, self.high = min(self.low, mean), max(self.high, mean)

    def best(self) -> int:
        """The root's action with the most visits, of equal ones that with the highest value."""
        return max(
            range(self.num_actions),
            key=lambda a: (self.root.children[a].visits, self.root.children[a].value),
        )

    def advance(self, action: int, state: Any) -> None:
        """Makes the child of `action` the root; `state` is the console's after the step."""
        self.root = self.root.children[action]
        self.root.last = state


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", nargs="?", default="seaquest")
    parser.add_argument("--simulations", type=int, default=8 if quick else 200, help="leaves for each step")
    parser.add_argument("--playout", type=int, default=5 if quick else 20, help="random steps from a child")
    parser.add_argument("--steps", type=int, default=5 if quick else 500, help="steps of the game to play")
    parser.add_argument("--batch", type=int, default=8, help="simulations at the same time")
    parser.add_argument("--frameskip", type=int, default=4, help="frames per step")
    options = parser.parse_args()

    rules: dict[str, Any] = {"obs_type": "ram", "stack_num": None, "frameskip": options.frameskip}
    env = parl.AtariVectorEnv(options.game, **rules)
    env.reset(seed=0)
    search = Search(
        env, env.get_state()[0], env.single_action_space.n, playout=options.playout, batch=options.batch
    )
    points, begin = 0, time.monotonic()
    for step in range(options.steps):
        search.simulate(options.simulations)
        action = search.best()
        _, _, terminated, truncated, info = env.step(np.array([action]))
        points += int(info["raw_reward"][0])
        if step % 50 == 49 or step == options.steps - 1 or terminated[0] or truncated[0]:
            rate = search.steps / (time.monotonic() - begin)
            print(
                f"step {step + 1:5}: {points:7,} points, {search.steps:12,} steps searched, {rate:9,.0f}/s",
                flush=True,
            )
        if terminated[0] or truncated[0]:
            break
        search.advance(action, env.get_state()[0])


if __name__ == "__main__":
    main()
