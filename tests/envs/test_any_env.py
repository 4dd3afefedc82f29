"""Environments as classes, partial functions, instances and text; wrappers; missing packages."""

import functools
import multiprocessing
import pickle
import subprocess
import sys
import threading
from importlib.util import find_spec
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from parl.envs import EnvMaker, spec_of
from parl.envs.load import load_wrapper, takes_num_envs
from parl.errors import ConfigError


class Grid(gymnasium.Env):
    """An environment as in Gymnasium's project template: every argument has a default."""

    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, render_mode=None, size=5):
        self.render_mode, self.size = render_mode, size
        self.observation_space = gymnasium.spaces.Box(0, size - 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Uncopied(Grid):
    def __deepcopy__(self, memo):
        raise TypeError("not this one")


class VectorGrid(SyncVectorEnv):
    def __init__(self, num_envs, size=5):
        super().__init__([functools.partial(Grid, size=size)] * num_envs)


def sizes(env):
    return [one.unwrapped.size for one in env.unwrapped.envs]


@pytest.mark.parametrize(
    "env",
    [
        functools.partial(Grid, size=7),
        lambda: Grid(size=7),
        Grid(size=7),
        gymnasium.wrappers.TimeLimit(Grid(size=7), 9),
        functools.partial(VectorGrid, size=7),
        lambda n: VectorGrid(n, 7),
        functools.partial(lambda size, num_envs=1: VectorGrid(num_envs, size), 7),
        SyncVectorEnv([functools.partial(Grid, size=7)] * 2),
    ],
)
def test_any_kind_of_environment_can_be_made_in_any_number_and_pickled(env):
    maker = EnvMaker(env)
    for one in (maker, pickle.loads(pickle.dumps(maker))):
        assert sizes(one(3)) == [7, 7, 7] and not one.is_text
    assert "/" not in maker.name and "function" not in maker.name


def test_a_class_takes_options_as_its_arguments():
    assert sizes(EnvMaker(Grid)(2)) == [5, 5]
    assert sizes(EnvMaker(Grid, {"size": 8})(2)) == [8, 8]
    assert sizes(EnvMaker(VectorGrid, {"size": 8})(2)) == [8, 8]
    for env, what in ((lambda: Grid(), "function"), (Grid(), "instance")):
        with pytest.raises(ConfigError, match=rf"env options \['size'\] .* env is a {what}"):
            EnvMaker(env, {"size": 8})
    for other in (3, SimpleNamespace(step=None, reset=None)):  # as an environment of another library
        with pytest.raises(
            ConfigError, match=r"env = .* is neither a Gymnasium id, a class, a function, an Env"
        ):
            EnvMaker(other)


def test_instances_are_copied_or_made_again_and_never_stepped():
    env = Grid()
    env.size = 9
    made = EnvMaker(env)(2)
    assert sizes(made) == [9, 9] and env not in made.unwrapped.envs
    with pytest.raises(ConfigError, match=r"neither copied \(TypeError: not this one\).*pass a function"):
        EnvMaker(Uncopied())(1)
    gymnasium.register("Uncopied-v0", Uncopied)
    try:
        assert sizes(EnvMaker(gymnasium.make("Uncopied-v0", size=6))(1)) == [6]
    finally:
        del gymnasium.registry["Uncopied-v0"]


def test_the_error_of_an_environment_that_refers_to_another_names_the_inner_one_alone():
    inner = EnvMaker(functools.partial(Grid, size=threading.Lock()))
    with pytest.raises(ConfigError, match="cannot be sent to other processes") as found:
        pickle.dumps(EnvMaker(functools.partial(Uncopied, size=inner)))
    assert str(found.value).count("cannot be sent") == 1 and "env = Grid" in str(found.value)


def test_vector_environments_of_gymnasium_are_made_again_in_other_numbers():
    mode = AutoresetMode.SAME_STEP
    made = EnvMaker(AsyncVectorEnv([Grid] * 2, autoreset_mode=mode))(1)
    assert isinstance(made, AsyncVectorEnv) and spec_of(made).autoreset == "same_step"
    made.close()
    own = EnvMaker(gymnasium.make_vec("CartPole-v1", num_envs=2))(3)
    assert (type(own).__name__, own.num_envs) == ("CartPoleVectorEnv", 3)
    for other in (gymnasium.wrappers.vector.RecordEpisodeStatistics(VectorGrid(2)), VectorGrid(2)):
        with pytest.raises(ConfigError, match="pass a function that takes the number of environments"):
            EnvMaker(other)(1)


class Varied(Grid):
    def __init__(self, high):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, high, (2,))


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_environments_are_made_again_with_their_options(kind):
    varied = [functools.partial(Varied, high) for high in (1, 2)]
    options = {"observation_mode": "different", "autoreset_mode": AutoresetMode.SAME_STEP}
    if kind is AsyncVectorEnv:
        options |= {"shared_memory": False, "context": "forkserver"}
    given = kind(varied, copy=False, **options)
    made = EnvMaker(given)._make(3)
    assert {name: getattr(made, name) for name in options} == options
    assert made.copy, "runs keep observations"
    assert made.observation_space.high[:, 0].tolist() == [1, 2, 1]
    given.close()
    made.close()
    single = gymnasium.spaces.Box(0, 9, (2,))
    mode = (gymnasium.vector.utils.batch_space(single, 2), single)
    given = kind(varied, observation_mode=mode)
    made = EnvMaker(given)._make(3)
    assert made.single_observation_space == single and made.observation_space.shape == (3, 2)
    given.close()
    made.close()


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_environments_of_gymnasium_can_be_sent_to_processes_and_kept_in_runs(kind):
    env = kind([functools.partial(Grid, size=7)] * 2)
    maker = pickle.loads(pickle.dumps(EnvMaker(env)))
    env.close()
    made = maker(3)
    assert (maker.name, type(made), made.get_attr("size")) == (kind.__name__, kind, (7, 7, 7))
    made.close()
    with multiprocessing.Pool(1) as pool:  # its processes cannot start others, as actors
        assert pool.apply(_size_of, (maker,)) == (7,)


def _size_of(maker):
    return maker(1).get_attr("size")


@pytest.mark.parametrize(
    ("env", "options"),
    [
        (lambda num_envs: AsyncVectorEnv([Grid] * num_envs), {}),
        ("CartPole-v1", {"vectorization_mode": "async"}),
    ],
)
def test_processes_of_an_environment_in_an_actor_process_are_refused_with_what_works(env, options):
    maker = EnvMaker(env, options)
    with multiprocessing.Pool(1) as pool:
        with pytest.raises(ConfigError, match=r"starts processes, .* make a SyncVectorEnv.*actor_kind"):
            pool.apply(_size_of, (maker,))
    maker(1).close()


def test_a_wrapper_that_cannot_be_called_is_named():
    with pytest.raises(ConfigError, match=r"wrappers\[1\] = 3 is neither a function, a class nor text"):
        EnvMaker(Grid, wrappers=[gymnasium.wrappers.Autoreset, 3])


def test_a_function_of_vector_environments_takes_their_number():
    assert takes_num_envs(lambda n: None) and takes_num_envs(functools.partial(gymnasium.make_vec, "A"))
    assert not takes_num_envs(functools.partial(gymnasium.make, "A")) and not takes_num_envs(Grid)
    assert EnvMaker(functools.partial(gymnasium.make_vec, "CartPole-v1"))(3).num_envs == 3
    with pytest.raises(ConfigError, match="returned a VectorEnv of 2 environments: let it take their number"):
        EnvMaker(lambda: VectorGrid(2))(2)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current folder, which registers an id and has a class and a wrapper."""
    (tmp_path / "my_grids.py").write_text(
        "import gymnasium\n"
        "from gymnasium.wrappers import TimeLimit\n"
        "class Cart(gymnasium.envs.classic_control.CartPoleEnv):\n    size = 5\n"
        "gymnasium.register('Own/Grid-v0', Cart, max_episode_steps=7)\n"
        "class Scaled(gymnasium.RewardWrapper):\n"
        "    def __init__(self, env, by=2.0):\n"
        "        super().__init__(env)\n"
        "        self.by = by\n"
        "    def reward(self, reward):\n"
        "        return reward * self.by\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "my_grids"
    sys.modules.pop("my_grids", None)
    gymnasium.registry.pop("Own/Grid-v0", None)


def test_modules_of_the_current_folder_are_found(module):
    registered, own = EnvMaker(f"{module}:Own/Grid-v0")(2), EnvMaker(f"{module}:Cart")(2)
    assert registered.unwrapped.envs[0].spec.max_episode_steps == 7 and sizes(own) == [5, 5]
    assert EnvMaker(f"{module}:Cart").is_text and EnvMaker("parl:parl/Pong-v0")(1).num_envs == 1
    for env, message in (
        ("no_such_module:Grid", "No module named 'no_such_module'.* current folder"),
        (f"{module}:NoSuch", "NoSuch.*module:Class"),
        ("NoSuch-v0", "NoSuch.*module:Class"),
    ):
        with pytest.raises(ConfigError, match=message):
            EnvMaker(env)(1)


@pytest.mark.parametrize("env", ["CartPole-v1", Grid, Grid(), lambda: Grid()])
def test_wrappers_wrap_each_environment_in_order(env, module):
    text = f"{module}:Scaled(by=3.0)"
    maker = EnvMaker(env, wrappers=[text, f"{module}:Scaled", lambda env: load_wrapper(text)(env)])
    made = pickle.loads(pickle.dumps(maker))(2)
    made.reset(seed=0)
    assert made.step(np.zeros(2, int))[1].tolist() == [18.0, 18.0]
    assert maker.wrapper_names == (text, f"{module}:Scaled", "<lambda>") and not maker.is_text
    assert EnvMaker("CartPole-v1", wrappers=[text]).is_text
    made.close()


def test_wrong_wrappers_are_named(module):
    for text in ("Scaled", f"{module}:Scaled(3.0)", f"{module}:Scaled(by=x)", f"{module}:a.b", f"{module}:"):
        with pytest.raises(ConfigError, match="is not of the form module:Wrapper or"):
            load_wrapper(text)
    with pytest.raises(ConfigError, match="has no wrapper NoSuch"):
        load_wrapper(f"{module}:NoSuch")
    with pytest.raises(ConfigError, match=r"is no list, expected \['"):
        EnvMaker("CartPole-v1", wrappers=f"{module}:Scaled")
    with pytest.raises(ConfigError, match="wrappers are for single environments"):
        EnvMaker(VectorGrid, wrappers=[f"{module}:Scaled"])(1)


def test_atari_ids_of_ale_work_without_an_import():
    found = EnvMaker("ALE/Pong-v5")(1)
    assert spec_of(found).num_actions == 6
    found.close()


MISSING = """
import sys
for name in ("mujoco", "Box2D", "ale_py"):
    sys.modules[name] = None  # as if it were not installed
from parl.envs import EnvMaker
for env in ("HalfCheetah-v5", "LunarLander-v3", "ALE/SpaceInvaders-v5"):
    try:
        EnvMaker(env)(1)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_missing_packages_are_named_with_the_command_that_installs_them():
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MISSING], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    texts = ["parl-rl[mujoco]", "parl-rl[box2d]", "'parl/SpaceInvaders-v0'"]
    assert len(found) == 3 and "pip install 'parl-rl[atari]'" in found[2]
    for line, text in zip(found, texts, strict=True):
        assert line.startswith("ConfigError env = ") and text in line


BOX2D = """
import sys, parl
run = parl.train("dqn", env="LunarLander-v3", total_steps=200, learning_starts=100, hidden=(16,),
                 schedule="deterministic", evaluation_episodes=1, quiet=True, runs=sys.argv[1])
print(parl.resume(run.path, total_steps=300).env_steps >= 300)
"""


@pytest.mark.skipif(find_spec("Box2D") is None, reason="Box2D is not installed")
def test_environments_of_box2d_train_and_resume(tmp_path):
    """In its own process: importing Box2D with warnings as errors, as in these tests, ends the process."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BOX2D, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert "a SwigPyObject is not plain data): a resumed run starts new episodes" in done.stderr
