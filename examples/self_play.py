"""Self-play: one PPO policy plays both sides of a game, also against a league of its past policies.

python examples/self_play.py [pong|boxing|...] [--total-steps 3000000] [--every 250000] [--games 40]

Half of the rows that PPO sees are the two players of the same consoles; the others are one player each, whose
opponent is a past policy of the league. Every checkpoint joins the league. Observations are the memory of the
console and a byte that says which player the row is. Elo ratings are updated after each game against the
league and are in `metrics.jsonl` with the other metrics (`elo`, `league`). At the end each policy plays the
one before it, and the last one also the first and a random player; a fit of all these games gives the final
ratings.

Sources: Bansal et al. (2018), "Emergent complexity via multi-agent competition" (past opponents); Elo (1978).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

import parl
from parl.algos import ppo

Array = NDArray[Any]
# A player: observations (n, 2, 129) to actions (n,).
Player = Callable[[Array], Array]

CONSOLES: dict[str, Any] = {
    "obs_type": "ram",
    "stack_num": 2,
    "padding": "reset",
    "repeat_action_probability": 0.25,
    "max_num_frames_per_episode": 8_000,
}
LEAGUE_SIZE = 8
ELO_STEP = 16.0  # largest change of a rating after a game, in points


def views(memory: Array, players: Array) -> Array:
    """Memory (n, 2, 128) as the players (n,) see it: with a byte that is 0 or 255, (n, 2, 129)."""
    flags = np.broadcast_to((players * 255).astype(np.uint8)[:, None, None], (len(memory), 2, 1))
    return np.concatenate([memory, flags], 2)


def expected(rating: float, other: float) -> float:
    """The score from 0 to 1 that a rating expects against another."""
    return 1.0 / (1.0 + 10.0 ** ((other - rating) / 400.0))


class League:
    """Past policies and their Elo ratings. The random player, member 0, has 0.

    Args:
        num_actions: of each player.
        seed: of the random player and of the choice of opponents.
    """

    def __init__(self, num_actions: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.names = ["random"]
        self.members: list[Player] = [lambda obs: self.rng.integers(num_actions, size=len(obs))]
        self.ratings = [0.0]
        self.rating = 0.0
        self.games = 0

    def add(self, name: str, player: Player) -> None:
        """Adds the current policy. A full league drops a random one, but neither the first nor the random."""
        if len(self.members) > LEAGUE_SIZE:
            gone = int(self.rng.integers(2, len(self.members)))
            for column in (self.names, self.members, self.ratings):
                column.pop(gone)
        self.names.append(name)
        self.members.append(player)
        self.ratings.append(self.rating)

    def draw(self) -> Player:
        """An opponent."""
        return self.members[self.rng.integers(len(self.members))]

    def record(self, opponent: Player, score: float) -> None:
        """Updates the rating of the current policy, and that of the opponent if it is still a member."""
        self.games += 1
        if opponent not in self.members:
            return
        at = self.members.index(opponent)
        change = ELO_STEP * (score - expected(self.rating, self.ratings[at]))
        self.rating += change
        if at > 0:
            self.ratings[at] -= change


# Environments, callback and learner of this process share it.
LEAGUE: League | None = None


class SelfPlayEnvs(VectorEnv[Any, Any, Any]):
    """Rows of players: pairs of rows play each other, single rows play members of the league.

    Args:
        num_envs: number of rows N; N // 4 consoles have two of them each.
        game: the game.
    """

    def __init__(self, num_envs: int, game: str) -> None:
        pairs = num_envs // 4
        singles = num_envs - 2 * pairs
        self.consoles = parl.AtariVectorEnv(
            game, pairs + singles, players=2, autoreset_mode="SameStep", reward_clipping=False, **CONSOLES
        )
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = spaces.Box(0, 255, (2, 129), np.uint8)
        self.single_action_space = spaces.Discrete(len(self.consoles.action_codes))
        self.observation_space = spaces.Box(0, 255, (num_envs, 2, 129), np.uint8)
        self.action_space = spaces.MultiDiscrete([self.single_action_space.n] * num_envs)
        # Console and player of each row, and the opponents of the single rows.
        single = np.arange(singles)
        self.row_console = np.concatenate([np.repeat(np.arange(pairs), 2), pairs + single])
        self.row_player = np.concatenate([np.tile([0, 1], pairs), single % 2])
        self.pairs, self.singles = pairs, singles
        self.opponents: list[Player] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts a game on each console."""
        assert LEAGUE is not None
        self.memory, _ = self.consoles.reset(seed=seed)
        self.opponents = [LEAGUE.draw() for _ in range(self.singles)]
        return self._rows(self.memory), {}

    def _rows(self, memory: Array) -> Array:
        return views(memory[self.row_console], self.row_player)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every console with the actions of the rows and of their opponents."""
        assert LEAGUE is not None
        both = np.zeros((self.pairs + self.singles, 2), np.int64)
        both[self.row_console, self.row_player] = actions
        others = 1 - self.row_player[2 * self.pairs :]
        obs = views(self.memory[self.pairs :], others)
        for opponent in dict.fromkeys(self.opponents):
            at = np.array([i for i, one in enumerate(self.opponents) if one is opponent])
            both[self.pairs + at, others[at]] = opponent(obs[at])
        self.memory, rewards, terminated, truncated, infos = self.consoles.step(both)
        mine = (self.row_console, self.row_player)
        ended = terminated | truncated
        for i in np.flatnonzero(ended[self.pairs :]):
            first, second = infos["episode_return"][self.pairs + i]
            won = np.sign(first - second) * (1 - 2 * self.row_player[2 * self.pairs + i])
            LEAGUE.record(self.opponents[i], (1.0 + won) / 2.0)
            self.opponents[i] = LEAGUE.draw()
        last: dict[str, Any] = {}
        if ended.any():
            last = {"final_obs": self._rows(infos["final_obs"]), "_final_obs": ended[self.row_console]}
        flags = terminated[self.row_console], truncated[self.row_console]
        return self._rows(self.memory), rewards[mine].astype(np.float32), *flags, last

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the consoles."""
        self.consoles.close()


class SelfPlayLearner(ppo.PPOLearner):
    """PPO's learner, whose metrics also have the league's."""

    def metrics(self) -> dict[str, float]:
        """Metrics of the latest update and of the league."""
        assert LEAGUE is not None
        more = {"elo": LEAGUE.rating, "league": len(LEAGUE.members), "league_games": LEAGUE.games}
        return super().metrics() | more


class SelfPlay(ppo.PPO):
    """PPO with the metrics of the league."""

    Config = ppo.Config
    topology = "rollout"
    learner = SelfPlayLearner
    default_config = staticmethod(ppo.default_config)


def player_of(folder: Any, env: Any) -> Player:
    """The policy of a checkpoint, which chooses as in training."""
    policy = parl.load(folder, env=env)
    return lambda obs: np.asarray(policy.predict(obs, deterministic=False)[0])


class AddToLeague(parl.Callback):
    """Adds the policy of every checkpoint to the league.

    Args:
        env: makes the environments.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.all: dict[str, Player] = {}

    def on_checkpoint(self, checkpoint: Any) -> None:
        """Adds a policy and shows the ratings."""
        assert LEAGUE is not None
        name = f"{checkpoint.env_steps:,}"
        self.all[name] = player_of(checkpoint.path, self.env)
        LEAGUE.add(name, self.all[name])
        ratings = zip(LEAGUE.names, LEAGUE.ratings, strict=True)
        print("Elo:", ", ".join(f"{name} {rating:.0f}" for name, rating in ratings), flush=True)


def match(game: str, one: Player, other: Player, games: int, seed: int = 0) -> float:
    """Mean score from 0 to 1 of a player in games against another, each on both sides in half of them."""
    envs = parl.AtariVectorEnv(game, games, players=2, reward_clipping=False, **CONSOLES)
    memory, _ = envs.reset(seed=seed)
    sides = np.arange(games) % 2
    scores = np.full(games, np.nan)
    while np.isnan(scores).any():
        both = np.zeros((games, 2), np.int64)
        both[np.arange(games), sides] = one(views(memory, sides))
        both[np.arange(games), 1 - sides] = other(views(memory, 1 - sides))
        memory, _, terminated, truncated, infos = envs.step(both)
        for i in np.flatnonzero((terminated | truncated) & np.isnan(scores)):
            first, second = infos["episode_return"][i]
            scores[i] = (1.0 + np.sign(first - second) * (1 - 2 * sides[i])) / 2.0
    envs.close()
    return float(scores.mean())


def fitted(count: int, results: Sequence[tuple[int, int, float, int]]) -> Array:
    """Elo ratings of players under which scores are most likely; that of player 0 is 0.

    Args:
        count: number of players.
        results: player, other player, mean score and number of games. Each pair also counts one drawn game,
            so that ratings stay finite.
    """
    ratings = np.zeros(count)
    for _ in range(4_000):
        gradient = np.zeros(count)
        for one, other, score, games in results:
            error = games * score + 0.5 - (games + 1) * expected(ratings[one], ratings[other])
            gradient[one] += error
            gradient[other] -= error
        ratings += 4.0 * gradient
        ratings -= ratings[0]
    return ratings


@dataclass
class Result:
    """What a run of self-play came to.

    Attributes:
        names: of the random player, and of the policies by their environment steps.
        ratings: their Elo ratings, fitted to the final matches; the random player has 0.
        against_first: mean score from 0 to 1 of the last policy against the first.
        against_random: mean score of the last policy against the random player.
        path: the run.
    """

    names: list[str]
    ratings: Array
    against_first: float
    against_random: float
    path: Any


def self_play(
    game: str, total_steps: int, every: int, num_envs: int, games: int, seed: int, **options: Any
) -> Result:
    """Trains by self-play and plays the final matches.

    Args:
        game: a game for two players.
        total_steps: environment steps.
        every: environment steps from one checkpoint to the next.
        num_envs: number of rows of players.
        games: number of games of a final match.
        seed: of the run.
        options: further settings of the run.
    """
    global LEAGUE
    with contextlib.closing(parl.AtariVectorEnv(game, 1, players=2, **CONSOLES)) as probe:
        LEAGUE = League(len(probe.action_codes), seed)
    env = functools.partial(SelfPlayEnvs, game=game)
    members = AddToLeague(env)
    parl.register_algorithm("self-play", SelfPlay)
    run = parl.train(
        "self-play",
        env=env,
        name=f"self-play-{game}-{seed}",
        num_envs=num_envs,
        total_steps=total_steps,
        checkpoint_every=every,
        evaluation_episodes=0,
        seed=seed,
        callbacks=[members],
        **ppo.PRESETS["atari-ram"].algorithm,
        **options,
    )
    players = [LEAGUE.members[0], *members.all.values()]
    last = len(players) - 1
    # Ratings of distant players follow from chains of neighbors.
    pairs = sorted({(i + 1, i) for i in range(last)} | {(last, 0), (last, 1)} - {(1, 1)})
    results = [(i, j, match(game, players[i], players[j], games, seed), games) for i, j in pairs]
    rates = {(i, j): score for i, j, score, _ in results}
    names = ["random", *members.all]
    return Result(names, fitted(len(players), results), rates[last, 1], rates[last, 0], run.path)


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", nargs="?", default="pong", help="a game for two players")
    parser.add_argument("--total-steps", type=int, default=2_048 if quick else 3_000_000)
    parser.add_argument("--every", type=int, default=1_024 if quick else 250_000, help="steps per checkpoint")
    parser.add_argument("--num-envs", type=int, default=8 if quick else 64)
    parser.add_argument("--games", type=int, default=2 if quick else 40, help="games of a final match")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if quick:
        CONSOLES["max_num_frames_per_episode"] = 200
    found = self_play(**vars(options))
    for name, rating in zip(found.names, found.ratings, strict=True):
        print(f"{name:>12}: Elo {rating:6.0f}")
    gain = found.ratings[-1] - found.ratings[1]
    print(f"last against first: score {found.against_first:.2f} of 1, Elo {gain:+.0f}")
    print(f"last against random: score {found.against_random:.2f} of 1; {found.path}")


if __name__ == "__main__":
    main()
