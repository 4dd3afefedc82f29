"""Small runs that learn from rollouts, for the tests of several topologies."""

from parl.envs import EnvMaker, spec_of
from parl.runtime.on_policy.setup import RolloutSetup


def rollout_setup(algorithm, config, env="CartPole-v1", **options):
    """Setup of a run of the class ``algorithm``; ``options`` are fields of :class:`RolloutSetup`."""
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    options = {"seed": 0, "num_envs": 5, "total_steps": 10**6, "actors": 2, "processes": True, **options}
    return RolloutSetup(algorithm=algorithm(config, spec), maker=maker, spec=spec, **options)


def run_until(loop, steps):
    """Runs ``loop`` until it has ``steps`` environment steps."""
    while loop.env_steps < steps:
        loop.advance(steps, 60.0)
    return loop
