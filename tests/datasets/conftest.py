import pytest

from parl import datasets


@pytest.fixture(scope="session")
def breakout(tmp_path_factory):
    """A dataset with sticky actions, of a dozen short episodes and three cut ones."""
    path = tmp_path_factory.mktemp("breakout") / "breakout.parl"
    return datasets.record(
        "breakout", path, 2_000, seed=3, num_envs=3, repeat_action_probability=0.25, num_threads=1
    )


@pytest.fixture(scope="session")
def long(tmp_path_factory):
    """A dataset of two cut episodes of 350 steps, with checkpoints after 125 and 250, hashes after 150."""
    path = tmp_path_factory.mktemp("long") / "pitfall2.parl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("parl.datasets.consoles.INTERVAL", 150)
        patch.setattr("parl.datasets.format._MOST_PER_STEP", 5.0)
        return datasets.record(
            "pitfall2", path, 700, num_envs=2, repeat_action_probability=0.25, num_threads=1
        )
