"""Steps parl and another library with the same actions, and compares all results."""

from __future__ import annotations

from typing import Any

import numpy as np

FIGURES = ("lives", "frame_number", "episode_frame_number")


def compare_with_ale(
    game: str, *, num_envs: int = 2, steps: int, seed: int = 3, actions_seed: int = 1, **kw: Any
) -> int:
    """Compares with ``ale_py.AtariVectorEnv``, byte for byte; returns the number of episode ends."""
    import ale_py

    import parl

    theirs = ale_py.AtariVectorEnv(game, num_envs, num_threads=1, **kw)
    ours = parl.AtariVectorEnv(game, num_envs, num_threads=2, **kw)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    obs_a, info_a = theirs.reset(seed=seed)
    obs_b, info_b = ours.reset(seed=seed)

    def check(t: int | str) -> None:
        for key in ("env_id", *FIGURES):
            assert info_a[key].dtype == info_b[key].dtype
            np.testing.assert_array_equal(info_b[key], info_a[key], f"{key} at step {t}")
        different = int((obs_a != obs_b).sum())
        assert different == 0, f"{different} bytes of the observations differ at step {t}"

    check("reset")
    rng = np.random.default_rng(actions_seed)
    ends = 0
    for t in range(steps):
        if kw.get("continuous"):
            columns = [rng.random(num_envs), rng.uniform(-np.pi, np.pi, num_envs), rng.random(num_envs)]
            actions = np.stack(columns, 1).astype(np.float32)
        else:
            actions = rng.integers(0, theirs.single_action_space.n, num_envs)
        obs_a, *figures_a, info_a = theirs.step(actions)
        obs_b, *figures_b, info_b = ours.step(actions)
        for name, a, b in zip(("reward", "terminated", "truncated"), figures_a, figures_b, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(b, a, f"{name} at step {t}")
        check(t)
        assert ("final_obs" in info_a) == ("final_obs" in info_b)
        if "final_obs" in info_b:
            mask = info_b["_final_obs"]
            np.testing.assert_array_equal(info_b["final_obs"][mask], info_a["final_obs"][mask])
        ends += int((figures_b[1] | figures_b[2]).sum())
    theirs.close()
    ours.close()
    return ends


def compare_vector_envs(
    theirs: Any, ours: Any, *, seed: int, steps: int, reset_seed: int | None, figures: tuple[str, ...]
) -> int:
    """Compares two vector environments with discrete actions; returns the number of episode ends."""
    obs_a, info_a = theirs.reset() if reset_seed is None else theirs.reset(seed=reset_seed)
    obs_b, info_b = ours.reset(seed=seed)
    np.testing.assert_array_equal(obs_b, obs_a)
    rng = np.random.default_rng(0)
    ends = 0
    for t in range(steps):
        actions = rng.integers(0, ours.single_action_space.n, ours.num_envs).astype(np.int32)
        obs_a, *figures_a, info_a = theirs.step(actions)
        obs_b, *figures_b, info_b = ours.step(actions)
        for name, a, b in zip(("reward", "terminated", "truncated"), figures_a, figures_b, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(b, a, f"{name} at step {t}")
        different = int((obs_a != obs_b).sum())
        assert different == 0, f"{different} bytes of the observations differ at step {t}"
        for key in figures:
            np.testing.assert_array_equal(info_b[key], info_a[key], f"{key} at step {t}")
        ends += int((figures_b[1] | figures_b[2]).sum())
    return ends
