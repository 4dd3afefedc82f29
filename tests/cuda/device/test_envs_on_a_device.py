"""All results of `AtariVectorEnv(device="cuda")` equal those of `device="cpu"`, byte for byte."""

import pickle
from typing import Any

import fake_driver
import numpy as np
import pytest
import torch
from env_pairs import pair, plain, run, same

import parl
from parl.envs.atari.presets import PRESETS
from parl.errors import AtariError, CudaUnavailableError


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_all_results_equal_those_of_the_cpu(mode: str) -> None:
    cpu, gpu = pair(
        ["breakout", "pong"],
        3,
        autoreset_mode=mode,
        max_num_frames_per_episode=20,
        repeat_action_probability=0.25,
        ram_info=True,
        reward_dtype="float32",
    )
    assert gpu.action_space == cpu.action_space
    assert gpu.observation_space == cpu.observation_space
    assert run(cpu, gpu, 12) > 1
    mask = {"reset_mask": np.array([True, False, True])}
    same(cpu.reset(seed=9, options=mask), gpu.reset(seed=9, options=mask))
    same(cpu.step(np.zeros(3, np.int64)), gpu.step(np.zeros(3, np.int64)))
    cpu.close()
    gpu.close()


@pytest.mark.parametrize("options", [{"autoreset_mode": "SameStep"}, {"stack_num": None}])
def test_objects_equal_those_of_the_cpu(options: dict[str, Any]) -> None:
    cpu, gpu = pair("breakout", 3, obs_type="objects", max_num_frames_per_episode=20, **options)
    assert run(cpu, gpu, 12) > 1
    out = torch.zeros(gpu.reset(seed=5)[0].shape, dtype=torch.uint8, device=gpu.device)
    np.testing.assert_array_equal(cpu.reset(seed=5)[0], plain(gpu.reset(seed=5, out=out)[0]))
    obs = gpu.step(torch.ones(3, dtype=torch.int64), out=out)[0]
    assert obs is out
    np.testing.assert_array_equal(cpu.step(np.ones(3, np.int64))[0], plain(out))
    with pytest.raises(AtariError, match='sliding_buffer_planes is 8 with obs_type="objects", expected 0'):
        parl.AtariVectorEnv("pong", 1, device="cuda", obs_type="objects", sliding_buffer_planes=8)


@pytest.mark.parametrize("life_loss", ["continues", "reports"])
def test_game_over_and_game_return_equal_those_of_the_cpu(life_loss: str) -> None:
    """Lives are lost, and games reach their frame limit, within about 20 steps of 4 frames."""
    cpu, gpu = pair("breakout", 2, life_loss=life_loss, obs_type="ram", max_num_frames_per_episode=80)
    run(cpu, gpu, 2)
    seen = set()
    for _ in range(30):
        left, right = cpu.step(np.ones(2, np.int64)), gpu.step(torch.ones(2, dtype=torch.int64))
        same(left, right)
        assert "game_over" in left[-1] and "game_return" in right[-1]
        seen |= set(zip((left[2] | left[3]).tolist(), left[-1]["game_over"].tolist(), strict=True))
    assert seen == {(False, False), (True, False), (True, True)}
    cpu.close()
    gpu.close()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_equals_the_cpu(preset: str) -> None:
    cpu, gpu = (parl.make_vec("breakout", 2, preset=preset, device=device) for device in ("cpu", "cuda"))
    # No episode is over after four steps.
    assert run(cpu, gpu, 4) == 0
    cpu.close()
    gpu.close()


def test_exact_boots_equal_those_of_the_cpu() -> None:
    cpu, gpu = pair("breakout", 2, boot="exact", max_num_frames_per_episode=20)
    assert run(cpu, gpu, 6) == 1
    # Without a seed the console boots on its current RAM.
    same(cpu.reset(), gpu.reset())
    same(cpu.step(np.zeros(2, np.int64)), gpu.step(np.zeros(2, np.int64)))
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    cpu.close()
    gpu.close()


def test_one_state_of_the_cpu_seeds_forty_consoles() -> None:
    cpu, gpu = pair("pong", 1)[0], parl.AtariVectorEnv("pong", 40, device="cuda")
    cpu.reset(seed=1)
    for _ in range(5):
        cpu.step(np.array([2]))
    gpu.reset(seed=5)
    gpu.seed_states(cpu.get_state()[0])
    found = gpu.get_state()
    assert found.shape[0] == 40
    assert (found == cpu.get_state()).all()
    obs = cpu.step(np.array([3]))[0]
    assert (plain(gpu.step(np.full(40, 3))[0]) == obs).all()
    # And one state back to the CPU.
    cpu.set_state(gpu.get_state(np.arange(40) == 37))
    obs = plain(gpu.step(np.full(40, 4))[0])
    np.testing.assert_array_equal(cpu.step(np.array([4]))[0], obs[37:38])
    gpu.clone(0, [1, 2])
    rows = gpu.get_state(np.arange(40) < 3)
    assert (rows == rows[0]).all()
    # Branches run on the CPU, from states of the device; their states continue on the device.
    after = cpu.branch(rows[:1], np.array([[[2, 2], [3, 3]]]))
    gpu.seed_states(after.states[0, 1])
    np.testing.assert_array_equal(gpu.get_state()[0], after.states[0, 1])
    with pytest.raises(ValueError, match="branch runs on the CPU, the environments on 'cuda'"):
        gpu.branch(rows, np.zeros((3, 1, 1), np.int64))
    with pytest.raises(
        ValueError, match="on the CPU, the environments are on 'cuda': load them with set_state"
    ):
        gpu.reset(options={"states": found})
    cpu.close()
    gpu.close()


def test_pickled_environments_continue_alike() -> None:
    _, gpu = pair("pong", 2)
    gpu.reset(seed=1)
    copy = pickle.loads(pickle.dumps(gpu))
    actions = np.array([2, 3])
    same(tuple(map(plain, gpu.step(actions))), copy.step(actions))
    np.testing.assert_array_equal(copy.get_state(), gpu.get_state())
    assert copy.get_state().shape[0] == 2
    gpu.close()
    copy.close()


def test_invalid_arguments_raise_errors_with_their_values() -> None:
    envs = parl.AtariVectorEnv("pong", 2, device="cuda")
    envs.reset()
    with pytest.raises(TypeError, match=r"actions have dtype torch\.float32, expected int64 or int32"):
        envs.step(torch.zeros(2))
    with pytest.raises(ValueError, match=r"actions have shape \(3,\), expected \(2,\)"):
        envs.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"out is torch\.uint8 of shape"):
        envs.step(torch.zeros(2, dtype=torch.int64), out=torch.zeros(3, dtype=torch.uint8))
    out = torch.zeros((2, 4, 84, 84), dtype=torch.uint8, device=envs.reset()[0].device)
    assert envs.step(torch.zeros(2, dtype=torch.int64), out=out)[0] is out
    envs.close()
    with pytest.raises(ValueError, match="closed"):
        envs.step(torch.zeros(2, dtype=torch.int64))


def test_invalid_actions_are_reported_by_the_next_call_that_synchronizes() -> None:
    envs = parl.AtariVectorEnv("pong", 3, device="cuda")
    envs.step(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="environment 2 has not been reset"):
        envs.check()
    envs.reset(seed=0)
    message = r"an action of environment 1 was outside 0 to 5; it did nothing"
    contacts = [
        envs.check,
        envs.get_state,
        lambda: envs.set_state(state),
        lambda: envs.seed_states(state[0]),
    ]
    state = envs.get_state()
    for contact in contacts:
        for wrong in (6, -1, 2**40):
            envs.step(np.array([0, wrong, 0]))
            with pytest.raises(ValueError, match=message):
                contact()
            envs.check()
    envs.close()


def test_a_step_is_captured_and_replayed() -> None:
    cpu, gpu = pair("breakout", 2, autoreset_mode="SameStep", max_num_frames_per_episode=20)
    same(cpu.reset(seed=2), gpu.reset(seed=2))
    actions = torch.zeros(2, dtype=torch.int64, device=gpu.device)
    graph = fake_driver.Graph()
    results = graph.capture(lambda: gpu.step(actions))
    for step in range(8):
        actions.fill_(step % 4)
        graph.replay()
        same(cpu.step(np.full(2, step % 4)), results)
    gpu.check()
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    assert int(results[-1]["frame_number"].min()) > 0
    cpu.close()
    gpu.close()


def test_the_default_device_of_torch_may_be_another() -> None:
    """New tensors are then not the host's, as with "cuda"; those of "meta" cannot be copied either."""
    cpu, gpu = pair("pong", 2)
    with torch.device("meta"):
        same(cpu.reset(seed=1), gpu.reset(seed=1))
        mask = {"reset_mask": np.array([False, True])}
        same(cpu.reset(seed=9, options=mask), gpu.reset(seed=9, options=mask))
        same(cpu.step(np.array([2, 3])), gpu.step(np.array([2, 3])))
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    cpu.close()
    gpu.close()


# ------------------------------------------------------------------ only with the fake driver


def test_steps_and_resets_do_not_synchronize(needs_fake_driver: None) -> None:
    envs = parl.AtariVectorEnv("breakout", 2, device="cuda")
    before = fake_driver.figure("synchronizations"), fake_driver.figure("copies")
    allocated = fake_driver.figure("allocations")
    envs.reset(seed=0)
    envs.reset(options={"reset_mask": np.array([True, False])})
    infos = envs.step(np.zeros(2, np.int64))[-1]
    assert (fake_driver.figure("synchronizations"), fake_driver.figure("copies")) == before
    # Statistics stay on the device, and the calls allocate no memory from the driver.
    assert {"lives", "episode_return", "_episode_return", "episode_length"} <= infos.keys()
    assert all(isinstance(value, torch.Tensor) for value in infos.values())
    assert fake_driver.figure("allocations") == allocated
    envs.check()
    assert fake_driver.figure("synchronizations") == before[0] + 1
    envs.close()


def test_every_call_synchronizes_its_own_stream(needs_fake_driver: None) -> None:
    """A lazy stream works only when it is synchronized itself."""
    cpu, gpu = pair("breakout", 2)
    cpu.reset(seed=4)
    gpu.reset(seed=0)
    fake_driver.set_figure("lazy", 1)
    fake_driver.Stream.handle = 0x57
    try:
        gpu.set_state(cpu.get_state())
        np.testing.assert_array_equal(gpu.get_state(), cpu.get_state())
        actions = torch.tensor([1, 2])
        results = gpu.step(actions)
        assert results[0].data_ptr() != 0
        gpu.check()
        same(cpu.step(np.array([1, 2])), results)
        gpu.close()
    finally:
        fake_driver.Stream.handle = 0
    cpu.close()


def test_close_frees_memory_modules_and_context(needs_fake_driver: None) -> None:
    names = ("allocations", "used", "modules", "contexts")
    before = [fake_driver.figure(name) for name in names]
    envs = parl.AtariVectorEnv("pong", 2, device="cuda")
    assert fake_driver.figure("used") - before[1] >= envs.device_bytes - envs.stack_bytes > 0
    envs.reset()
    envs.set_state(envs.get_state())
    envs.close()
    envs.close()
    assert [fake_driver.figure(name) for name in names] == before


def test_work_that_waits_is_done_before_the_kernels_are_unloaded(needs_fake_driver: None) -> None:
    modules = fake_driver.figure("modules")
    envs = parl.AtariVectorEnv("pong", 2, device="cuda")
    envs.reset()
    fake_driver.set_figure("lazy", 1)
    results = envs.step(torch.zeros(2, dtype=torch.int64))  # the work writes to their memory
    envs.close()
    fake_driver.set_figure("lazy", 0)
    del results
    assert fake_driver.figure("modules") == modules


def test_environments_on_two_devices_give_equal_results(needs_fake_driver: None) -> None:
    fake_driver.set_figure("devices", 2)
    first, second = (parl.AtariVectorEnv("pong", 1, device=device) for device in ("cuda", "cuda:1"))
    expected = parl.AtariVectorEnv("pong", 1, boot="snapshot")
    results = expected.reset(seed=1)
    same(results, first.reset(seed=1))
    same(results, second.reset(seed=1))
    second.set_state(first.get_state())
    assert (second.get_state() == expected.get_state()).all()
    for envs in (first, second):
        envs.check()
        envs.close()
    expected.close()


def test_a_failing_device_raises_its_cuda_error(needs_fake_driver: None) -> None:
    envs = parl.AtariVectorEnv("pong", 1, device="cuda:0")
    envs.reset()
    fake_driver.set_figure("devices", 2)
    other = parl.AtariVectorEnv("pong", 1, device="cuda:1")
    other.reset()
    fake_driver.set_figure("fail", 700)
    fake_driver.set_figure("lazy", 1)
    kept = other.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match=r"cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        other.check()
    # The other device still works, and so does the process.
    fake_driver.set_figure("lazy", 0)
    del kept
    envs.step(np.zeros(1, np.int64))
    envs.check()
    envs.close()
    other.close()


@pytest.mark.parametrize(
    ("options", "asked"), [({}, 2 * 28_224), ({"sliding_buffer_planes": 64}, 2 * 64 * 84 * 84)]
)
def test_out_of_memory_for_results_raises_an_error_with_sizes(
    options: dict[str, Any], asked: int, needs_fake_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the numbers, and the environments work again once there is memory."""
    expected = parl.AtariVectorEnv("pong", 2, boot="snapshot")
    envs = parl.AtariVectorEnv("pong", 2, device="cuda", **options)

    def none_left(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    text = f"out of memory on cpu: {asked} bytes were asked for, 1000 of 5000 are free"
    monkeypatch.setattr(parl.cuda, "free_memory", lambda device: (1000, 5000))
    for name in ("empty", "zeros"):
        monkeypatch.setattr(torch, name, none_left)
    with pytest.raises(CudaUnavailableError, match=text):
        envs.reset(seed=1)
    monkeypatch.undo()
    same(expected.reset(seed=1), envs.reset(seed=1))
    envs.close()
    expected.close()
