"""The tables of docs/environments.md: every algorithm takes or refuses a space as they say."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple

from parl.envs import EnvMaker, Observer, spec_of
from parl.errors import ConfigError
from parl.train import ALGORITHMS
from parl.train.registry import class_of, make_algorithm, module_of

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"
VECTOR, IMAGE = Box(-1, 1, (2,)), Box(0, 255, (1, 36, 36), np.uint8)
OBSERVATIONS = {
    "`Box`": VECTOR,
    "`Discrete`": Discrete(3, start=1),
    "`MultiDiscrete`": MultiDiscrete([2, 3]),
    "`MultiBinary`": MultiBinary(2),
    "`Tuple` of vectors": Tuple((Discrete(2), Tuple((MultiBinary(2), VECTOR)))),
    "`Tuple` with images": Tuple((Discrete(2), IMAGE)),
    "`Dict`": Dict({"a": Discrete(2), "b": Dict({"c": IMAGE})}),
    "`Text`": Text(3),
    "`Graph`": Graph(VECTOR, None),
    "`Sequence`": Sequence(VECTOR),
}
ACTIONS = {
    "`Box`": VECTOR,
    "`Discrete`, also with `start`": Discrete(3, start=1),
    "`MultiDiscrete`": MultiDiscrete([2, 3]),
    "`MultiBinary`": MultiBinary(2),
    "`Tuple` of the three above": Tuple((Discrete(2), MultiBinary(2), MultiDiscrete([2, 3]))),
}


class Random(gymnasium.Env):
    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, False, {}


def table(heading):
    """(row, algorithm) -> cell of the table below a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    lines = [line.strip("|").split("|") for line in re.search(r"(\|.*\n)+", text)[0].splitlines()]
    head, _, *rows = ([cell.strip() for cell in line] for line in lines)
    return {
        (row[0], name): cell
        for row in rows
        for title, cell in zip(head[1:], row[1:], strict=True)
        for name in title.split(", ")
        if name in ALGORITHMS
    }


def takes(name, observation, action):
    """Whether an algorithm's policy acts in an environment with these spaces."""
    try:
        maker = EnvMaker(lambda: Random(observation, action))
        env = maker(2)
        spec = spec_of(env)
        algorithm = make_algorithm(name, module_of(name).default_config(spec), spec)
    except ConfigError:
        return "no"
    policy = algorithm.make_policy(0, 1, 2, 0)
    chosen = policy.act_greedily(Observer(spec)(env.reset(seed=0)[0]))
    low, high = getattr(action, "low", None), getattr(action, "high", None)
    env.step(chosen if low is None else np.clip(chosen, low, high))
    return "yes"


@pytest.mark.parametrize("heading", ["Observation spaces", "Action spaces"])
def test_algorithms_take_the_spaces_that_the_page_says(heading):
    cells = table(heading)
    spaces = OBSERVATIONS if heading.startswith("Obs") else ACTIONS
    assert cells.keys() == {(row, name) for row in spaces for name in ALGORITHMS}
    discrete = {"dqn", "rainbow", "pqn"}
    found = {
        (row, name): takes(name, space, Discrete(2) if name in discrete else VECTOR)
        if spaces is OBSERVATIONS
        else takes(name, VECTOR, space)
        for row, space in spaces.items()
        for name in ALGORITHMS
    }
    assert found == cells


def test_algorithms_use_masks_as_the_page_says():
    cells = {name: cell for (_, name), cell in table("Action masks").items()}
    used = {
        name: "used" if getattr(class_of(name), "takes_masks", False) else "ignored" for name in ALGORITHMS
    }
    assert cells == used
