"""`parl.jax` beside `parl.AtariVectorEnv`, inside jit, scan, vmap and shard_map, and its errors.

With JAX only: `make test-jax` installs it.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parl
import parl.jax
from parl.errors import AtariError, ConfigError

jax = pytest.importorskip("jax", reason="JAX is not installed: `make test-jax` installs it")
jnp = jax.numpy

N = 4
# The error of a program: a ValueError if JAX runs it within the call, otherwise where its results are used.
RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)


def same(a: Any, b: Any) -> None:
    """Two trees of arrays are equal bit for bit."""
    left, right = jax.tree.leaves(a), jax.tree.leaves(b)
    assert len(left) == len(right) > 0
    for x, y in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda array: array[index], tree)


@pytest.fixture(scope="module")
def pong() -> parl.jax.AtariEnv:
    return parl.jax.make("pong", N, num_threads=2)


@pytest.fixture(scope="module")
def state(pong: parl.jax.AtariEnv) -> parl.jax.State:
    return jax.jit(pong.reset)(jax.random.key(0))[0]


def rollout(env: parl.jax.AtariEnv, state: Any, key: Any, steps: int = 12) -> Any:
    """Random actions in a scan; returns the last state and sums that depend on every step."""

    def body(state: Any, key: Any) -> Any:
        actions = jax.random.randint(key, state.rows.shape[:-1], 0, env.num_actions)
        state, obs, reward, terminated, _, info = env.step(state, actions)
        pixels = obs.astype(jnp.int32).sum(range(actions.ndim, obs.ndim))
        return state, (pixels, reward, terminated, info["frame_number"])

    return jax.lax.scan(body, state, jax.random.split(key, steps))


# ---------------------------------------------------------------------- equality with AtariVectorEnv

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "pong": ("pong", {}),
    "pong, sticky": ("pong", {"repeat_action_probability": 0.25}),
    "breakout, lives": ("breakout", {"life_loss": "ends", "repeat_action_probability": 0.25}),
    "breakout, same step": (
        "breakout",
        {"autoreset_mode": "SameStep", "life_loss": "any", "reward_clipping": False, "ram_info": True},
    ),
    "seaquest": ("seaquest", {"life_loss": "continues", "noop_max": 1, "padding": "reset"}),
    "seaquest, sticky, same step": (
        "seaquest",
        {"autoreset_mode": "SameStep", "repeat_action_probability": 0.25, "max_num_frames_per_episode": 200},
    ),
    "modified": ("breakout", {"mode": 4, "hold": {0x39: 5}, "max_num_frames_per_episode": 200}),
    "adventure": ("adventure", {"max_num_frames_per_episode": 120}),
    "memory": ("pong", {"obs_type": "ram", "stack_num": None, "max_num_frames_per_episode": 200}),
    "color": (
        "breakout",
        {"obs_type": "rgb", "channel_order": "first", "stack_num": 2, "img_height": 40, "img_width": 32},
    ),
    "indices": ("freeway", {"obs_type": "index", "frameskip": (2, 5), "noops": "numpy"}),
    "snapshot": ("pong", {"boot": "snapshot", "max_num_frames_per_episode": 100, "show_last_frame": True}),
    "float rewards": ("pong", {"reward_dtype": "float32", "max_num_steps_per_episode": 30}),
}


@pytest.mark.parametrize("case", CASES)
def test_results_equal_those_of_the_vector_environment(case: str) -> None:
    game, options = CASES[case]
    same_step = options.get("autoreset_mode") == "SameStep"
    env = parl.jax.make(game, N, final_obs=same_step, **options)
    model = parl.AtariVectorEnv(game, N, **options)
    assert env.obs_shape == model.single_observation_space.shape
    assert env.action_codes == model.action_codes
    key = jax.random.key(3)
    seeds = np.asarray(env.seeds(key)).astype(np.int64)
    expected, _ = model.reset(seed=seeds)
    state, obs = jax.jit(env.reset)(key)
    same(obs, expected)
    same(state.obs, expected)
    step, rng, ends = jax.jit(env.step, donate_argnums=0), np.random.default_rng(0), 0
    for _ in range(160):
        actions = rng.integers(0, env.num_actions, N)
        state, obs, reward, terminated, truncated, info = step(state, jnp.asarray(actions))
        expected, rewards, ended, cut, infos = model.step(actions)
        same((obs, state.obs, reward, terminated, truncated), (expected, expected, rewards, ended, cut))
        assert reward.dtype == rewards.dtype
        for name in ("lives", "frame_number", "episode_frame_number"):
            same(info[name], infos[name])
        same(info["raw_reward"], infos.get("raw_reward", rewards))
        if "game_over" in infos:
            same(info["game_over"], infos["game_over"])
        if options.get("ram_info"):
            same(info["ram"], infos["ram"])
        same(info["ended"], infos.get("_episode_return", np.zeros(N, bool)))
        if "episode_return" in infos:
            ends += int(infos["_episode_return"].sum())
            for name in ("episode_return", "episode_length"):
                same(info[name], infos[name])
            if same_step:
                same(info["final_obs"], infos["final_obs"])
                for name in ("lives", "frame_number", "episode_frame_number"):
                    same(info["final_info"][name], infos["final_info"][name])
    assert ends > 0 or case.startswith("pong") or case in ("color", "indices")


# ---------------------------------------------------------------------- jit, scan, vmap


def test_scan_equals_single_steps(pong: parl.jax.AtariEnv, state: Any) -> None:
    actions = jax.random.randint(jax.random.key(1), (20, N), 0, pong.num_actions)
    last, rewards = jax.jit(lambda s: jax.lax.scan(lambda s, a: pong.step(s, a)[::2][:2], s, actions))(state)
    expected, step = state, jax.jit(pong.step)
    for i in range(20):
        expected, _, reward, *_ = step(expected, actions[i])
        same(rewards[i], reward)
    same(last, expected)


def test_a_step_without_jit_equals_one_with_it(pong: parl.jax.AtariEnv, state: Any) -> None:
    actions = jnp.arange(N) % pong.num_actions
    same(pong.step(state, actions), jax.jit(pong.step)(state, actions))


def test_vmap_equals_separate_calls(pong: parl.jax.AtariEnv) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    states, obs = jax.jit(jax.vmap(pong.reset))(keys)
    assert obs.shape == (3, N, 4, 84, 84)
    together = jax.jit(jax.vmap(lambda s, k: rollout(pong, s, k)))(states, keys)
    for i in range(3):
        same(at(states, i), pong.reset(keys[i])[0])
        same(at(together, i), jax.jit(lambda s, k: rollout(pong, s, k))(at(states, i), keys[i]))


def test_nested_vmap_and_single_environments(pong: parl.jax.AtariEnv) -> None:
    keys = jax.random.split(jax.random.key(0), (2, 3))
    states, _ = jax.vmap(jax.vmap(pong.reset))(keys)
    actions = jax.random.randint(jax.random.key(1), (2, 3, N), 0, pong.num_actions)
    direct = jax.jit(pong.step)(states, actions)
    same(jax.jit(jax.vmap(jax.vmap(pong.step)))(states, actions), direct)
    # Without the axis of environments.
    same(jax.jit(jax.vmap(jax.vmap(jax.vmap(pong.step))))(states, actions), direct)
    same(jax.jit(pong.step)(at(states, (1, 2, 0)), actions[1, 2, 0]), at(direct, (1, 2, 0)))
    # Another axis of the actions.
    last = jax.jit(jax.vmap(pong.step, (0, 1)))(states, jnp.moveaxis(actions, 0, 1))
    same(last, direct)


def test_one_state_with_several_actions(pong: parl.jax.AtariEnv, state: Any) -> None:
    actions = jnp.tile(jnp.arange(pong.num_actions)[:, None], (1, N))
    futures = jax.jit(jax.vmap(pong.step, (None, 0)))(state, actions)
    for i in range(pong.num_actions):
        same(at(futures, i), jax.jit(pong.step)(state, actions[i]))
    rows = np.asarray(futures[0].rows)
    assert len(np.unique(rows.reshape(len(rows), -1), axis=0)) > 1


def test_steps_do_not_change_their_arguments(pong: parl.jax.AtariEnv, state: Any) -> None:
    before = [np.array(array) for array in state]
    actions = jnp.zeros(N, jnp.int32)

    def futures(state: Any) -> Any:
        first = pong.step(state, actions)
        second = pong.step(state, actions + 2)
        return first, second, pong.step(state, actions), pong.step(first[0], actions)

    first, second, again, later = jax.jit(futures)(state)
    same(first, again)
    same(second, jax.jit(pong.step)(state, actions + 2))
    same(later, jax.jit(pong.step)(first[0], actions))
    same(before, list(state))
    assert (np.asarray(first[0].rows) != np.asarray(second[0].rows)).any()


def test_a_donated_state_takes_no_new_memory(pong: parl.jax.AtariEnv, state: Any) -> None:
    mine = jax.tree.map(jnp.copy, state)
    step = jax.jit(lambda s, a: pong.step(s, a)[0], donate_argnums=0)
    addresses = [array.unsafe_buffer_pointer() for array in mine]
    after = step(mine, jnp.zeros(N, jnp.int32))
    assert [array.unsafe_buffer_pointer() for array in after] == addresses
    assert mine.rows.is_deleted()


def test_threads_and_calls_at_the_same_time(state: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    keys = jax.random.split(jax.random.key(2), 4)
    expected = None
    for threads in (1, 2, 3):
        env = parl.jax.make("pong", N, num_threads=threads)
        assert env.num_threads == threads
        run = jax.jit(lambda s, k, env=env: rollout(env, s, k))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(run, [state] * 4, keys))
        expected = expected or found
        same(found, expected)


def test_shards_on_two_devices() -> None:
    """In a process of its own, because devices are chosen when JAX starts."""
    code = """
import jax, numpy as np, parl
env = parl.jax.make("pong", 4)
state, _ = env.reset(jax.random.key(0))
actions = jax.numpy.arange(4)
mesh = jax.make_mesh((2,), ("envs",))
spec = jax.sharding.PartitionSpec("envs")
if not hasattr(jax, "shard_map"):  # Before JAX 0.6.
    from jax.experimental.shard_map import shard_map
    jax.shard_map = shard_map
step = jax.jit(jax.shard_map(env.step, mesh=mesh, in_specs=(spec, spec), out_specs=spec))
placed = jax.device_put((state, actions), jax.sharding.NamedSharding(mesh, spec))
found, expected = step(*placed), jax.jit(env.step)(state, actions)
assert len(found[1].sharding.device_set) == 2
for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
print("equal")
"""
    flags = "--xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr


def test_the_shapes_of_other_programs(pong: parl.jax.AtariEnv, state: Any) -> None:
    shapes = jax.eval_shape(pong.step, state, jax.ShapeDtypeStruct((N,), jnp.int32))
    found = pong.step(state, jnp.zeros(N, jnp.int32))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), found) == jax.tree.map(
        lambda a: (a.shape, a.dtype), shapes
    )
    # A compiled program names its environments by settings and ROM.
    text = jax.jit(pong.step).lower(state, jnp.zeros(N, jnp.int32)).as_text()
    assert "parl_atari_step" in text and pong._attributes["rom_md5"] in text


def test_zero_environments_give_empty_arrays(pong: parl.jax.AtariEnv) -> None:
    state, obs = jax.jit(pong.reset_with_seeds)(jnp.zeros((0,), jnp.uint32))
    assert obs.shape == (0, 4, 84, 84)
    assert jax.jit(pong.step)(state, jnp.zeros((0,), jnp.int32))[2].shape == (0,)


def test_actions_of_every_integer_type(pong: parl.jax.AtariEnv, state: Any) -> None:
    expected = pong.step(state, jnp.array([0, 1, 2, 3], jnp.int32))
    for dtype in (jnp.uint8, jnp.int8, jnp.int16, jnp.uint32):
        same(pong.step(state, jnp.array([0, 1, 2, 3], dtype)), expected)
    same(pong.step(state, np.array([0, 1, 2, 3])), expected)


# ---------------------------------------------------------------------- kept pictures


def kept_bytes(state: Any) -> Any:
    """(N,) bytes of the pictures that the environments keep."""
    return np.asarray(state.rows)[:, 4:8].copy().view(np.uint32)[:, 0]


@pytest.mark.parametrize("frameskip", [1, 4])
def test_pictures_that_later_frames_show_are_kept(frameskip: int) -> None:
    """Tic-Tac-Toe 3D draws parts of its picture, so that observations show older ones."""
    env = parl.jax.make("tic_tac_toe_3d", N, frameskip=frameskip)
    model = parl.AtariVectorEnv("tic_tac_toe_3d", N, frameskip=frameskip)
    state, _ = env.reset_with_seeds(jnp.arange(N))
    model.reset(seed=0)
    step, rng, most = jax.jit(env.step), np.random.default_rng(0), 0
    for _ in range(150):
        actions = rng.integers(0, env.num_actions, N)
        state, obs, *_ = step(state, jnp.asarray(actions))
        same(obs, model.step(actions)[0])
        most = max(most, kept_bytes(state).max())
    assert most > 5_000


def test_pictures_beyond_picture_bytes_are_an_error() -> None:
    """Without idle frames after a reset the picture of the boot is kept, until a whole step has run."""
    options: dict[str, Any] = {"noop_max": 0, "use_fire_reset": False}
    env = parl.jax.make("pong", 2, **options)
    state, _ = env.reset_with_seeds(jnp.array([1, 2]))
    assert (kept_bytes(state) == 200).all()
    state, *_ = env.step(state, jnp.zeros(2, jnp.int32))
    assert (kept_bytes(state) == 0).all()
    small = parl.jax.make("pong", 2, picture_bytes=199, **options)
    assert small.state_bytes < env.state_bytes
    with pytest.raises(RUNTIME_ERRORS, match=r"keeps 200 bytes of pictures.* room for 199"):
        jax.block_until_ready(small.reset_with_seeds(jnp.array([1, 2])))


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "no_such_game", {"game": "no_such_game"}),
        (TypeError, "one game", {"game": ["pong", "breakout"]}),
        (AtariError, "num_envs is 0", {"num_envs": 0}),
        (AtariError, "picture_bytes is -1", {"picture_bytes": -1}),
        (AtariError, "frameskip", {"frameskip": 0}),
        (AtariError, 'obs_type is "objects", expected "gray"', {"obs_type": "objects"}),
        (AtariError, "final_obs is True with autoreset_mode=NextStep", {"final_obs": True}),
        (AtariError, "2 variations, expected one", {"mode": [0, 1]}),
        (TypeError, "players is no option", {"players": 2}),
        (ConfigError, "preset is 'best'", {"preset": "best"}),
        (TypeError, "device is no option of parl.jax.make", {"device": "cuda"}),
        (TypeError, "batch_size is no option", {"batch_size": 1}),
    ],
)
def test_wrong_settings_are_refused(error: type[Exception], message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        parl.jax.make(**{"game": "pong", "num_envs": 2, **arguments})


def test_wrong_arrays_are_refused(pong: parl.jax.AtariEnv, state: Any) -> None:
    actions = jnp.zeros(N, jnp.int32)
    step = jax.jit(pong.step)
    with pytest.raises(TypeError, match="actions have dtype float32, expected integers"):
        step(state, jnp.zeros(N))
    with pytest.raises(ValueError, match=r"state.rows has shape \(4, \d+\) with actions of shape \(3,\)"):
        step(state, actions[:3])
    with pytest.raises(ValueError, match=r"state.rows has shape \(4, 10\)"):
        step(state._replace(rows=state.rows[:, :10]), actions)
    with pytest.raises(ValueError, match=r"state.obs has shape \(4, 3, 84, 84\).*expected \(4, 4, 84, 84\)"):
        step(state._replace(obs=state.obs[:, 1:]), actions)
    with pytest.raises(TypeError, match=r"state\.obs has dtype float32, expected uint8"):
        step(state._replace(obs=state.obs / 255), actions)
    with pytest.raises(TypeError, match=r"state is a tuple, expected a parl\.jax\.State"):
        pong.step(tuple(state), actions)
    with pytest.raises(TypeError, match="seeds have dtype float32"):
        pong.reset_with_seeds(jnp.zeros(N))


@pytest.mark.parametrize("action", [-1, 6, 2**31 - 1])
def test_actions_outside_the_space(pong: parl.jax.AtariEnv, state: Any, action: int) -> None:
    actions = jnp.zeros(N, jnp.int32).at[2].set(action)
    with pytest.raises(RUNTIME_ERRORS, match=rf"action {action} of row 2 is outside 0 to 5"):
        jax.block_until_ready(jax.jit(pong.step)(state, actions))
    # The threads go on.
    jax.block_until_ready(jax.jit(pong.step)(state, jnp.zeros(N, jnp.int32)))


def damaged(state: Any, row: int, first: int, values: Any) -> Any:
    values = jnp.asarray(values, jnp.uint8)
    return state._replace(rows=state.rows.at[row, first : first + len(values)].set(values))


def test_damaged_rows_are_named(pong: parl.jax.AtariEnv, state: Any) -> None:
    actions, step = jnp.zeros(N, jnp.int32), jax.jit(pong.step)

    def message(state: Any) -> str:
        with pytest.raises(RUNTIME_ERRORS) as caught:
            jax.block_until_ready(step(state, actions))
        return str(caught.value)

    empty = state._replace(rows=jnp.zeros_like(state.rows))
    assert re.search(r"row \d of states: .* version 0, expected 2", message(empty))
    assert "row 2 of states" in message(damaged(state, 2, 0, [9, 0, 0, 0]))
    # Bytes and rows of kept pictures.
    assert "not 420 rows of its pictures" in message(damaged(state, 1, 4, [5, 0, 0, 0, 164, 1, 0, 0]))
    assert "pictures" in message(damaged(state, 1, 4, [255] * 8))
    # A number of draws that a reset would repeat for a minute: the sixth to last number of the fixed part.
    end = pong.state_bytes - 12_288
    assert "4294967295 draws of idle frames" in message(damaged(state, 0, end - 24, [255] * 4))
    other, _ = parl.jax.make("breakout", N).reset(jax.random.key(0))
    assert "game" in message(other) or "cartridge" in message(other)


def test_random_damage_is_an_error_or_a_state(pong: parl.jax.AtariEnv, state: Any) -> None:
    """Rows have no checksum: a changed byte gives an error or another console, never a crash."""
    step, rng = jax.jit(pong.step), np.random.default_rng(0)
    used = 16 + np.flatnonzero(np.asarray(state.rows).any(0)).max()
    errors = 0
    for _ in range(150):
        rows = np.array(state.rows)
        for _ in range(int(rng.integers(1, 20))):
            rows[0, rng.integers(0, used)] = rng.integers(0, 256)
        try:
            after = step(state._replace(rows=jnp.asarray(rows)), jnp.zeros(N, jnp.int32))
            jax.block_until_ready(after)
        except RUNTIME_ERRORS as error:
            assert "row 0 of states" in str(error) or "environment 0" in str(error)
            errors += 1
    assert errors > 10


def test_an_ended_environment_without_autoreset() -> None:
    env = parl.jax.make("pong", 2, autoreset_mode="Disabled", max_num_steps_per_episode=2)
    state, _ = env.reset(jax.random.key(0))
    fresh, actions, step = state, jnp.zeros(2, jnp.int32), jax.jit(env.step)
    state, *_ = step(state, actions)
    state, _, _, _, truncated, _ = step(state, actions)
    assert truncated.all()
    with pytest.raises(RUNTIME_ERRORS, match=r"environment [01] has ended and autoreset is disabled"):
        jax.block_until_ready(step(state, actions))
    # The way that works: a state of a reset takes its place.
    done = jnp.array([True, False])
    mixed = jax.tree.map(
        lambda new, old: jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old), fresh, state
    )
    with pytest.raises(RUNTIME_ERRORS, match="environment 1 has ended"):
        jax.block_until_ready(step(mixed, actions))


OTHER_PROCESS = """
import sys
import jax, jax.export, numpy as np, parl

program = jax.export.deserialize(open("program", "rb").read())
arrays = np.load("arrays.npz")
parl.jax.make("breakout", 2)
try:
    jax.block_until_ready(program.call(arrays["rows"], arrays["obs"], arrays["actions"]))
except (ValueError, jax.errors.JaxRuntimeError) as error:
    print(error)
parl.jax.make("pong", 1, num_threads=2)
for name, found in zip(("new_rows", "new_obs"), program.call(*map(arrays.get, ("rows", "obs", "actions")))):
    np.testing.assert_array_equal(np.asarray(found), arrays[name])
print("equal")
"""


def test_a_program_in_another_process(pong: parl.jax.AtariEnv, state: Any, tmp_path: Path) -> None:
    """A program names its environments by settings and ROM: another process must have made the same."""
    export = importlib.import_module("jax.export")
    allowed = [export.DisabledSafetyCheck.custom_call("parl_atari_step")]
    step = jax.jit(lambda rows, obs, actions: tuple(pong.step(parl.jax.State(rows, obs), actions)[0]))
    actions = jnp.arange(N, dtype=jnp.int32)
    exported = export.export(step, disabled_checks=allowed)(*state, actions)
    (tmp_path / "program").write_bytes(bytes(exported.serialize()))
    new_rows, new_obs = step(*state, actions)
    arrays = {"rows": state.rows, "obs": state.obs, "actions": actions}
    np.savez(tmp_path / "arrays.npz", **arrays, new_rows=new_rows, new_obs=new_obs)
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS], cwd=tmp_path, capture_output=True, text=True)
    error, last = done.stdout.splitlines()
    assert last == "equal", done.stderr
    assert "has not made the environments" in error and "call parl.jax.make" in error and '"pong"' in error


# ---------------------------------------------------------------------- DLPack


def test_tensors_of_torch_become_arrays() -> None:
    pytest.importorskip("torch")
    envs = parl.AtariVectorEnv("pong", 2, output="torch")
    obs, _ = envs.reset(seed=0)
    array = jax.dlpack.from_dlpack(obs)
    same(array, obs.numpy())
