"""Environments and wrappers from text, classes, functions and instances."""

from __future__ import annotations

import ast
import copy
import inspect
import multiprocessing
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from parl.errors import ConfigError
from parl.functions import import_module

Wrapper = Callable[[Any], Any]
"""Takes an environment and returns it wrapped."""
# Extras of parl that install the packages of environments which Gymnasium registers.
_EXTRAS = ("box2d", "mujoco")
# What a single environment has.
_MEMBERS = ("reset", "step", "observation_space", "action_space")


def load_env(text: str) -> Any:
    """The class or function that ``module:name`` names; or the Gymnasium id, after importing its module.

    Raises:
        ConfigError: a module cannot be imported, or a package that registers the id is missing.
    """
    module, colon, name = text.partition(":")
    if colon:
        return getattr(import_module(module, f"env = {text!r}"), name, name)
    if text.startswith("ALE/") and text not in gymnasium.registry:
        try:
            import ale_py
        except ImportError as error:
            raise ConfigError(
                f"env = {text!r} needs ale-py: pip install 'parl-rl[atari]'; or use parl's own console: "
                f"env = 'parl/{re.sub('-v[0-9]+$', '', text[4:])}-v0'"
            ) from error
        gymnasium.register_envs(ale_py)
    return text


def load_wrapper(text: str) -> Wrapper:
    """The wrapper that ``module:name`` or ``module:name(argument=value, ...)`` names.

    Args:
        text: such as ``gymnasium.wrappers:TimeLimit(max_episode_steps=100)``; values are Python literals.

    Raises:
        ConfigError: the text is not of this form, or there is no such wrapper.
    """
    module, _, call = text.partition(":")
    what = f"wrappers: {text!r}"
    try:
        tree = ast.parse(call.strip(), mode="eval").body
        name, keywords = (tree.func, tree.keywords) if isinstance(tree, ast.Call) else (tree, [])
        if not isinstance(name, ast.Name) or (isinstance(tree, ast.Call) and tree.args):
            raise ValueError("no name with keyword arguments")
        arguments = {str(one.arg): ast.literal_eval(one.value) for one in keywords}
    except (SyntaxError, ValueError) as error:
        form = "gymnasium.wrappers:TimeLimit(max_episode_steps=100)"
        raise ConfigError(f"{what} is not of the form module:Wrapper or {form}") from error
    kind = getattr(import_module(module, what), name.id, None)
    if not callable(kind):
        raise ConfigError(f"{what}: module {module} has no wrapper {name.id}")
    chosen: Wrapper = kind
    return (lambda env: chosen(env, **arguments)) if arguments else chosen


def make_registered(
    env: str, num_envs: int, options: Mapping[str, Any], wrappers: Sequence[Wrapper]
) -> VectorEnv[Any, Any, Any]:
    """A vector environment of a Gymnasium id.

    Raises:
        ConfigError: the id is not registered, or a package that the environment needs is missing.
    """
    # Wrappers are for single environments, not for an id's own vector environment.
    given: dict[str, Any] = {"wrappers": wrappers, "vectorization_mode": "sync"} if wrappers else {}
    try:
        return gymnasium.make_vec(env, num_envs=num_envs, **(given | dict(options)))
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(
            f"env = {env!r}: {error}; an environment of your own is module:Class, or module:Id if the module "
            "registers it"
        ) from error
    except gymnasium.error.DependencyNotInstalled as error:
        extra = re.search(r"gymnasium\[([\w-]+)\]", str(error))
        if extra is None or extra[1] not in _EXTRAS:
            raise ConfigError(f"env = {env!r}: {error}") from error
        raise ConfigError(
            f"env = {env!r} needs packages that are not installed: pip install 'parl-rl[{extra[1]}]'"
        ) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"env = {env!r}: {error}") from error
    except TypeError as error:
        if not options:
            raise
        raise ConfigError(f"env = {env!r} with env_options {' '.join(options)}: {error}") from error


def takes_num_envs(function: Callable[..., Any]) -> bool:
    """Whether a class or function makes vector environments: it takes the number of environments.

    Functions do if they have a parameter without a default, or one named ``num_envs``.
    """
    if inspect.isclass(function):
        return issubclass(function, VectorEnv)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        one.name == "num_envs" or (one.default is one.empty and one.kind in positional)
        for one in inspect.signature(function).parameters.values()
    )


def make_by_function(
    function: Callable[..., Any],
    num_envs: int,
    name: str,
    options: Mapping[str, Any],
    wrappers: Sequence[Wrapper],
) -> VectorEnv[Any, Any, Any]:
    """A vector environment of a class or function, of single or of vector environments.

    Raises:
        ConfigError: it does not return what its parameters promise.
    """
    if not takes_num_envs(function):

        def make() -> Any:
            made = function(**options)
            if isinstance(made, VectorEnv):
                raise ConfigError(
                    f"{name}() returned a VectorEnv of {made.num_envs} environments: let it take their "
                    "number, as in lambda num_envs: gymnasium.make_vec(..., num_envs=num_envs)"
                )
            for wrapper in wrappers:
                made = wrapper(made)
            missing = [one for one in _MEMBERS if not hasattr(made, one)]
            if missing:
                raise ConfigError(f"{name}() returned {made!r}, which lacks {', '.join(missing)} of an Env")
            return made

        envs = SyncVectorEnv([make] * num_envs)
        if len({id(getattr(one, "unwrapped", one)) for one in envs.envs}) < num_envs:
            raise ConfigError(
                f"{name}() returned the same environment twice: make a new one in the function, each time"
            )
        return envs
    if wrappers:
        raise ConfigError(
            f"wrappers are for single environments, {name} makes vector environments: wrap there"
        )
    make_vector: Any = function
    named = not inspect.isclass(function) and "num_envs" in inspect.signature(function).parameters
    made = make_vector(num_envs=num_envs, **options) if named else make_vector(num_envs, **options)
    if not isinstance(made, VectorEnv) or made.num_envs != num_envs:
        raise ConfigError(
            f"{name}({num_envs}) returned {made!r}, expected a VectorEnv of {num_envs} environments"
        )
    return made


def copy_env(env: gymnasium.Env[Any, Any]) -> Any:
    """A copy of an environment; or one made anew from its ``spec``, if it cannot be copied.

    Raises:
        ConfigError: neither works.
    """
    try:
        return copy.deepcopy(env)
    except Exception as error:  # an environment may raise any error
        if env.spec is None:
            raise ConfigError(
                f"env = {env} can be neither copied ({type(error).__name__}: {error}) nor made again, for it "
                "has no spec: pass a function that makes it"
            ) from error
        return gymnasium.make(env.spec)


class Remade:
    """Makes vector environments as one of Gymnasium's, in other numbers.

    It keeps functions and options alone, not the environment, whose processes and windows cannot be pickled.
    In a worker process, which cannot start processes, environments are stepped one after the other.
    Observations are always copied: runs keep them after the next step.

    Args:
        env: a vector environment that has a function for each of its environments.
    """

    def __init__(self, env: SyncVectorEnv | AsyncVectorEnv) -> None:
        self.__name__ = type(env).__name__
        self._kind: Callable[..., VectorEnv[Any, Any, Any]] = type(env)
        self._functions = list(env.env_fns)
        self._single = env.single_observation_space
        # Gymnasium keeps its arguments as attributes of the same names; older versions not all of them.
        names = inspect.signature(self._kind).parameters.keys() - {"env_fns", "copy"}
        self._options = {name: getattr(env, name) for name in names if hasattr(env, name)}
        self._options["autoreset_mode"] = env.metadata["autoreset_mode"]

    def __call__(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """A vector environment of ``num_envs`` environments."""
        made = [self._functions[i % len(self._functions)] for i in range(num_envs)]
        kind = SyncVectorEnv if multiprocessing.current_process().daemon else self._kind
        takes = inspect.signature(kind).parameters
        options = {name: value for name, value in self._options.items() if name in takes}
        if isinstance(options.get("observation_mode"), tuple):
            options["observation_mode"] = (batch_space(self._single, num_envs), self._single)
        return kind(made, **options)


def resize(env: VectorEnv[Any, Any, Any], num_envs: int) -> VectorEnv[Any, Any, Any]:
    """A vector environment as ``env``, with ``num_envs`` environments.

    Raises:
        ConfigError: it cannot be made again.
    """
    if env.unwrapped is env and env.spec is not None:
        spec = copy.deepcopy(env.spec)
        spec.kwargs.pop("num_envs", None)  # Gymnasium keeps the number there, and prefers it to the argument
        return gymnasium.make_vec(spec, num_envs=num_envs)
    raise ConfigError(
        f"env = {env} cannot be made with {num_envs} environments, which probing, workers and evaluations "
        "need: pass a function that takes the number of environments"
    )
