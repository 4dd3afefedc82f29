"""`CudaAtariVectorEnv` without a device, beside `AtariVectorEnv`: its addresses, shapes and names.

Its tensors lie in the process's memory, and the batch on CPU threads stands in for the kernels, which
`crates/cule/tests/gpu.rs` proves equal to it.
"""

import ctypes
from typing import Any

import numpy as np
import pytest

import parl
from parl import _native
from parl.envs.atari_cuda import CudaAtariVectorEnv

torch = pytest.importorskip("torch")


def at(address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """The array at an address, None at 0."""
    if address == 0:
        return None
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype).reshape(shape)


class Core:
    """`_native.CudaAtariBatch` in the process's memory."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.batch = _native.AtariBatch(config)
        self.num_envs, self.actions, self.obs_shape = (
            self.batch.num_envs,
            self.batch.actions,
            self.batch.obs_shape,
        )

    def write(self, results: Any, numbers: int, flags: int) -> None:
        at(numbers, (11, self.num_envs), np.int32)[:] = results[0]
        at(flags, (3, self.num_envs), np.bool_)[:] = results[1]

    def places(self, obs: int, final: int, ram: int) -> tuple[Any, Any, Any]:
        shape = (self.num_envs, *self.obs_shape)
        return at(obs, shape, np.uint8), at(final, shape, np.uint8), at(ram, (self.num_envs, 128), np.uint8)

    def reset(self, seeds: int, mask: int, targets: tuple[int, ...], stream: int) -> None:
        assert stream == 0
        obs, _, ram = self.places(*targets[:3])
        given, chosen = at(seeds, (self.num_envs,), np.int64), at(mask, (self.num_envs,), np.uint8)
        results = self.batch.reset(
            None if given is None else given.tolist(),
            None if chosen is None else chosen.astype(bool).tolist(),
            obs,
            ram,
        )
        self.write(results, *targets[3:])

    def step(self, actions: int, wide: bool, targets: tuple[int, ...], stream: int) -> None:
        assert stream == 0
        obs, final, ram = self.places(*targets[:3])
        chosen = at(actions, (self.num_envs,), np.int64 if wide else np.int32)
        self.write(self.batch.step(chosen, obs, final, ram), *targets[3:])

    def get_state(self, envs: list[int], stream: int) -> Any:
        assert stream == 0
        return self.batch.get_state(envs)

    def set_state(self, states: Any, envs: list[int], stream: int) -> None:
        assert stream == 0
        self.batch.set_state(states, envs)

    def close(self) -> None:
        self.batch.close()


class InMemory(CudaAtariVectorEnv):
    """The class itself, on torch's CPU."""

    def _make_core(self, config: dict[str, Any]) -> Any:
        self._on(torch.device("cpu"))
        return Core(config)

    def _stream(self) -> int:
        return 0


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return value.numpy() if hasattr(value, "numpy") else value


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_all_that_comes_out_is_that_of_the_cpu(mode: str) -> None:
    options: dict[str, Any] = {
        "num_envs": 3,
        "autoreset_mode": mode,
        "max_num_frames_per_episode": 30,
        "repeat_action_probability": 0.25,
        "ram_info": True,
        "boot": "snapshot",
        "reward_dtype": "float32",
    }
    expected = parl.AtariVectorEnv(["breakout", "pong"], **options)
    found = InMemory(["breakout", "pong"], device="cuda", **options)
    assert found.action_space == expected.action_space
    assert found.observation_space == expected.observation_space
    pairs = [(expected.reset(seed=3), found.reset(seed=3))]
    actions = np.random.default_rng(0)
    for step in range(20):
        chosen = actions.integers(0, found.single_action_space.n, 3)
        dtype = torch.int64 if step % 2 else torch.int32
        pairs.append((expected.step(chosen), found.step(torch.tensor(chosen, dtype=dtype))))
        if step == 10:
            mask = {"reset_mask": np.array([True, False, True])}
            pairs.append((expected.reset(seed=9, options=mask), found.reset(seed=9, options=mask)))
    ended = 0
    for left, right in pairs:
        for a, b in zip(left[:-1], right[:-1], strict=True):
            np.testing.assert_array_equal(a, b.numpy())
            assert b.numpy().dtype == a.dtype
        infos = plain(right[-1])
        ended += "episode_return" in left[-1]
        for key, value in left[-1].items():
            np.testing.assert_equal(infos[key], value, err_msg=key)
    assert ended > 1
    expected.close()
    found.close()


def test_states_of_one_device_fit_the_other() -> None:
    options: dict[str, Any] = {"num_envs": 2, "boot": "snapshot"}
    cpu, gpu = parl.AtariVectorEnv("pong", **options), InMemory("pong", device="cuda", **options)
    cpu.reset(seed=1)
    gpu.reset(seed=5)
    gpu.set_state(cpu.get_state())
    np.testing.assert_array_equal(gpu.get_state(), cpu.get_state())
    gpu.seed_states(cpu.get_state()[0])
    gpu.clone(0, 1)
    rows = gpu.get_state(np.array([True, True]))
    np.testing.assert_array_equal(rows[0], rows[1])
    cpu.close()
    gpu.close()


def test_bad_calls_are_named() -> None:
    envs = InMemory("pong", 2, device="cuda")
    envs.reset()
    with pytest.raises(TypeError, match=r"actions have dtype torch\.float32, expected int64 or int32"):
        envs.step(torch.zeros(2))
    with pytest.raises(ValueError, match=r"actions have shape \(3,\), expected \(2,\)"):
        envs.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"out is torch\.uint8 of shape"):
        envs.step(torch.zeros(2, dtype=torch.int64), out=torch.zeros(3, dtype=torch.uint8))
    for call in (lambda: envs.send([0, 0]), envs.recv):
        with pytest.raises(ValueError, match="send and recv"):
            call()
    out = torch.zeros((2, 4, 84, 84), dtype=torch.uint8)
    assert envs.step(torch.zeros(2, dtype=torch.int64), out=out)[0] is out
    envs.close()
    with pytest.raises(ValueError, match="closed"):
        envs.step(torch.zeros(2, dtype=torch.int64))
