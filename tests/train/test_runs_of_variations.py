"""Runs in environments with variations of a game: what they record, and that they go on with it."""

import numpy as np

import parl
from parl.run import RunDirectory

OPTIONS = {
    "obs_type": "ram",
    "stack_num": None,
    "mode": [0, 4],
    "modifications": [["infinite_lives", "other_colors"], None],
    "ram": {0x30: 7},
}
SETTINGS = {"num_envs": 4, "rollout_steps": 8, "minibatch_size": 16, "epochs": 1, "quiet": True}


def test_a_run_records_its_variations(tmp_path):
    evaluation = {"max_num_frames_per_episode": 400}
    run = parl.train(
        "ppo",
        "parl/Breakout-v0",
        env_options=OPTIONS,
        evaluation_env_options=evaluation,
        total_steps=64,
        evaluation_episodes=2,
        runs=str(tmp_path),
        **SETTINGS,
    )
    recorded = RunDirectory.open(run.path).about["environment"]
    assert recorded["mode"] == [0, 4] and recorded["ram"] == {"0x30": 7}
    protocol = parl.train.protocol(run.path, "last")
    for text in ("mode=[0, 4]", "'infinite_lives', 'other_colors'", "ram={'0x30': 7}"):
        assert text in protocol, protocol
    # The environments of the policy are those of the run.
    envs = parl.load(run.path).env_maker(2).unwrapped
    assert [one.mode for one in envs.variations] == [0, 4]
    assert envs.variations[0].modifications == ("infinite_lives", "other_colors")
    assert parl.evaluate(run.path, 2).shape == (2,)


def test_the_same_seed_gives_the_same_run_again(tmp_path):
    """Also where the run was interrupted: its environments are restored with their variations."""
    names = [("whole", 64), ("half", 32)]
    runs = [
        parl.train(
            "ppo",
            "parl/Breakout-v0",
            env_options=OPTIONS,
            total_steps=steps,
            evaluation_episodes=0,
            seed=3,
            name=name,
            runs=str(tmp_path),
            **SETTINGS,
        )
        for name, steps in names
    ]
    resumed = parl.resume(runs[1].path, total_steps=64)
    weights = [parl.load(one.path).network.state_dict() for one in (runs[0], resumed)]
    for name, value in weights[0].items():
        np.testing.assert_array_equal(value.numpy(), weights[1][name].numpy(), name)
