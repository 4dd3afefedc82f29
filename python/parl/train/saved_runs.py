"""What run directories hold: settings, policies, learners and checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parl import functions, pickles
from parl.errors import ConfigError, RunDirectoryError
from parl.run import RunDirectory
from parl.run.directory import is_on_hub
from parl.train import start_states
from parl.train.config import RunConfig
from parl.train.environments import env_maker, evaluation_maker, probe_env
from parl.train.registry import check_known, make_algorithm, topology_of
from parl.train.settings import Layer, import_paths, resolve, table_layer

if TYPE_CHECKING:
    from gymnasium import Env

    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.setup import SavedLearner
    from parl.train.environments import EnvLike
    from parl.train.policy import Policy
    from parl.types import EnvSpec


@dataclasses.dataclass(frozen=True)
class OpenedRun:
    """An opened run directory with its algorithm, settings and environments."""

    run: RunDirectory
    name: str
    config: Any
    algorithm: Any
    maker: EnvMaker
    spec: EnvSpec

    def make_setup(self, config: Any) -> Any:
        """The setup of the run with the settings ``config``."""
        made = make_algorithm(self.name, self.algorithm, self.spec)
        setup = topology_of(self.name).setup(made, config, self.maker, self.spec)
        saved = start_states.read(self.run, config)
        return dataclasses.replace(setup, **start_states.fields(config, saved))


def open_run(
    path: str | Path,
    trusted: bool,
    env: EnvLike | None = None,
    spec: EnvSpec | None = None,
    networks: Mapping[str, Any] | None = None,
) -> OpenedRun:
    """Opens a run directory; ``env``, ``spec`` and pickled ``networks`` are those of the run if None."""
    run = RunDirectory.open(path)
    run.verify()
    table, path = run.config, run.path / "config.toml"
    cleared = run.about.get("cleared", {})
    name = check_known(table, path)
    layers = [table_layer(name, table, path)]
    for value in import_paths(name, table):
        functions.check(value, path, trusted)
    is_callable = callable(env)
    if not is_callable:
        named = [*table["run"].get("wrappers", ()), *([table["run"]["env"]] if env is None else [])]
        for value in named:
            functions.check_environment(value, path, trusted)
    if (pickled := run.path / "network.pkl").exists():
        own = pickles.load(pickled, trusted) if networks is None else networks
        layers.append(Layer(str(pickled), {}, own))
    if env is not None:
        maker = env_maker(name, env, [] if is_callable else layers)
    elif (pickled := run.path / "env.pkl").exists():
        maker = pickles.load(pickled, trusted)
    elif run.about.get("function_env"):
        maker = _absent_env(table["run"]["env"], run.path)
    else:
        maker = env_maker(name, None, layers)
    spec = spec or probe_env(maker)[0]
    config, algorithm = resolve(name, spec, layers)
    config = dataclasses.replace(config, **dict.fromkeys(cleared.get("run", ())))
    algorithm = dataclasses.replace(algorithm, **dict.fromkeys(cleared.get(name, ())))
    return OpenedRun(run, name, config, algorithm, maker, spec)


def _absent_env(name: str, path: Path) -> EnvMaker:
    """A maker in place of a function that is not part of the folder ``path``; raises an error when called."""
    from parl.envs import EnvMaker

    def absent() -> Env[Any, Any]:
        raise ConfigError(
            f"the environment {name} is a function and not part of {path}: give env= to parl.load"
        )

    absent.__name__ = name
    return EnvMaker(absent)


def _text_wrappers(run: RunDirectory, env: Any, trusted: bool) -> tuple[str, ...]:
    """The wrappers of a run that wrap ``env`` in place of its own environment; none if some are functions.

    Raises:
        ConfigError: some are functions, and ``env`` is not one that applies them.
        UntrustedRunError: some are of modules that were not named, and the run is not trusted.
    """
    file = run.path / "config.toml"
    wrappers = tuple(map(str, run.config["run"].get("wrappers", ())))
    own = [name for name in wrappers if ":" not in name]
    if own and not callable(env):
        raise ConfigError(
            f"{file}: wrappers {', '.join(own)} are functions or classes without a path module:Wrapper, so "
            f"that env = {env!r} cannot be wrapped: give env= a function that applies them, or trust=True "
            "without env"
        )
    for name in () if own else wrappers:
        functions.check_environment(name, file, trusted)
    return () if own else wrappers


def locate(source: str | Path, checkpoint: str, *files: str) -> tuple[Path, Path]:
    """The run directory of ``source``, see :func:`load`, and the folder of its policy.

    The policy, and ``files`` in its folder, are verified.
    """
    from parl.runtime.policy_file import NAME

    if checkpoint not in ("best", "last"):
        raise ConfigError(f"checkpoint = {checkpoint!r} is not one of best, last")
    if is_on_hub(source):
        from parl.train.hub import download

        source = download(str(source))
    path, only = Path(source), ["counters.json", NAME, *files]
    if (path / "manifest.json").is_file():
        run = RunDirectory.open(path.resolve().parents[1])
        run.checkpoints.verify(path, only)
        return run.path, path
    if (path / NAME).is_file():
        return path, path
    run = RunDirectory.open(path)
    return path, run.checkpoints.verified(checkpoint, only)


def load(
    source: str | Path,
    checkpoint: str = "best",
    *,
    env: str | Callable[..., Any] | None = None,
    trust: bool = False,
) -> Policy:
    """Loads the policy of a run.

    Args:
        source: a run directory, a folder of one of its checkpoints, a folder that
            :meth:`parl.train.policy.Policy.save_for_hub` wrote, or ``"hf://user/repository"`` on the Hugging
            Face Hub.
        checkpoint: of a run directory: ``"last"``; or ``"best"``, the one with the highest score.
        env: as in :func:`train`, in place of the run's environment. The run's wrappers that are text wrap it
            too; of a run with wrappers that are functions or classes it must be a function, and apply all.
        trust: load the environment of the run if it is a pickle, see :func:`resume`.

    Raises:
        ConfigError: the spaces of ``env`` are not those of the policy, or it lacks wrappers.
        FileNotFoundError: there is no such folder, or the run has no checkpoint.
        RunDirectoryError: a file is missing, damaged or of another run. The message names it.
        UntrustedRunError: the environment is a pickle that another process wrote; neither ``env`` nor
            ``trust`` was given; or wrappers are of modules that were not named.
    """
    from parl.runtime import policy_file
    from parl.train.policy import Policy, PolicyConfig

    path, folder = locate(source, checkpoint)
    saved = policy_file.read(folder / policy_file.NAME)
    wrappers = () if env is None else _text_wrappers(RunDirectory.open(path), env, trust)
    opened = open_run(path, trust, env, saved.spec)
    if callable(env):
        opened = dataclasses.replace(opened, maker=env_maker(opened.name, env, [], None, wrappers))
    if saved.algorithm != opened.name:
        raise RunDirectoryError(f"{folder / policy_file.NAME} is of {saved.algorithm}, not of {opened.name}")
    if env is not None and (found := probe_env(opened.maker)[0].spaces) != saved.spec.spaces:
        raise ConfigError(
            f"env = {opened.maker.name} has {found}; the policy of {path} takes {saved.spec.spaces}"
        )
    config = opened.config
    if callable(env) and not isinstance(env, type):
        config = dataclasses.replace(config, evaluation_env_options=())  # a function takes no options
    acting = make_algorithm(opened.name, opened.algorithm, saved.spec).make_policy(0, 1, 1, 0)
    policy_file.load_into(acting, saved.tensors)
    return Policy(
        acting=acting,
        algorithm=opened.name,
        run=path,
        folder=folder,
        spec=saved.spec,
        config=PolicyConfig(opened.config, opened.algorithm),
        env_maker=evaluation_maker(opened.maker, config),
        env_steps=saved.env_steps,
    )


def saved_learner(name: str, config: RunConfig, own: Any, made: Any, maker: EnvMaker) -> SavedLearner | None:
    """The learner of the run ``config.init_from``, from whose weights a run starts; None without such a run.

    Functions of that run that are pickles are not loaded: the new run's functions make the networks.

    Args:
        name: name of the new run's algorithm.
        config: settings of the new run.
        own: settings of the new run's algorithm.
        made: the new run's algorithm.
        maker: makes the new run's environments.

    Raises:
        ConfigError: the other run has another algorithm or other networks; names the first parameter whose
            shape differs.
    """
    source = config.init_from
    if source is None:
        return None
    import torch

    from parl.runtime import policy_file
    from parl.runtime.setup import SavedLearner

    path, folder = locate(source, "best", "learner.pt")
    if not (folder / "learner.pt").is_file():
        raise ConfigError(f"init_from = {source!r} has no learner.pt: name a run or one of its checkpoints")
    saved = policy_file.read(folder / policy_file.NAME)
    if saved.algorithm != name:
        raise ConfigError(f"init_from = {source!r} is a run of {saved.algorithm}, not of {name}")
    networks = {key: getattr(own, key) for key in ("torso", "network") if hasattr(own, key)}
    opened = open_run(path, False, cast("EnvLike", maker.env), saved.spec, networks)
    state = torch.load(folder / "learner.pt", weights_only=True, map_location="cpu")
    theirs = opened.algorithm
    if getattr(theirs, "cuda_graph", False):
        theirs = dataclasses.replace(theirs, cuda_graph=False)
    found = SavedLearner(make_algorithm(name, theirs, saved.spec), state)
    learner = made.make_learner(0, config.device)
    try:
        found.start(learner)
    except ConfigError as error:
        raise ConfigError(f"init_from = {source!r} does not fit: {error}") from error
    except RuntimeError as error:  # of torch: the new run's functions make other networks
        raise ConfigError(
            f"init_from = {source!r} does not fit: its networks have other parameters: {error}"
        ) from error
    return found


def last_checkpoint_of(run: RunDirectory, rank: int, trusted: bool) -> Checkpoint | None:
    """The last checkpoint of a process, verified; None if it has none."""
    from parl.runtime import checkpoint

    try:
        return checkpoint.read(run.checkpoints_of(rank).verified("last"), trusted)
    except FileNotFoundError:
        return None
