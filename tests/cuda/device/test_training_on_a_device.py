"""Training with environments, replay and learner on a device: `parl.train`, and its parts."""

from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_driver
import numpy as np
import pytest
import run_on_fake_driver
import torch

import parl
from parl.algos import dqn, sac
from parl.algos.common import off_policy_learner
from parl.errors import ConfigError
from parl.ops import adam, execution
from parl.replay.cuda.replay import CudaReplay
from parl.runtime.cuda import off_policy, on_policy
from saved_learners import weights_of

# Computing gradients makes torch count devices, which fails with the fake driver and gives a warning.
pytestmark = [pytest.mark.filterwarnings("ignore:CUDA initialization"), pytest.mark.slow]

OPTIONS: dict[str, Any] = {
    "env": "parl/Breakout-v0",
    "env_options": ["device=cuda", "img_height=36", "img_width=36", "max_num_frames_per_episode=40"],
    "device": "cuda",
    "num_envs": 3,
    "batch_size": 4,
    "replay_ratio": 1.0,
    "replay_capacity": 200,
    "learning_starts": 18,
    "n_step": 2,
    "target_period": 3,
    "hidden": (16,),
    "checkpoint_every": 30,
    "evaluation_episodes": 0,
    "quiet": True,
}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places learners where the device's tensors are: with the fake driver, on the CPU."""
    run_on_fake_driver.place_learners(monkeypatch.setattr)


def trained(folder: Path, **options: Any) -> Any:
    return parl.train("dqn", **{**OPTIONS, "runs": str(folder), **options})


ROLLOUTS = {name: OPTIONS[name] for name in ("env", "env_options", "device", "num_envs", "hidden")}
ROLLOUTS |= {name: OPTIONS[name] for name in ("checkpoint_every", "evaluation_episodes", "quiet")}
ROLLOUTS |= {"rollout_steps": 5, "minibatch_size": 5, "epochs": 2}


@pytest.mark.usefixtures("here")
def test_rollouts_stay_on_the_device_and_resume_with_the_same_numbers(tmp_path: Path) -> None:
    """Episodes have ten steps, so they end in every second rollout."""
    folder = {"runs": str(tmp_path)}
    whole = parl.train("ppo", **ROLLOUTS, **folder, name="whole", total_steps=60)
    # Four rollouts of 15 rows, each six minibatches.
    assert (whole.env_steps, whole.updates) == (60, 24)
    half = parl.train("ppo", **{**ROLLOUTS, "checkpoint_every": 15}, **folder, name="half", total_steps=60)
    assert torch.equal(weights_of(whole.path), weights_of(half.path))
    short = parl.train("ppo", **ROLLOUTS, **folder, name="short", total_steps=30, anneal=False)
    long = parl.train("ppo", **ROLLOUTS, **folder, name="long", total_steps=60, anneal=False)
    resumed = parl.resume(short.path, total_steps=60)
    assert (resumed.env_steps, resumed.updates) == (60, 24)
    assert torch.equal(weights_of(long.path), weights_of(resumed.path))
    records = [json.loads(line) for line in (Path(long.path) / "metrics.jsonl").read_text().splitlines()]
    assert np.isfinite(records[-1]["policy_loss"]) and records[-1]["episode_return"] is not None
    assert parl.evaluate(long.path, episodes=2, checkpoint="last").shape == (2,)


@pytest.mark.usefixtures("here")
def test_a_rollout_iteration_does_not_synchronize(
    tmp_path: Path, needs_fake_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    round_of = on_policy.CudaRolloutLoop._iterate

    def waited() -> int:
        return fake_driver.figure("synchronizations") + fake_driver.figure("copies")

    def counted(self: Any, seconds: float) -> None:
        before = waited()
        round_of(self, seconds)
        waits.append(waited() - before)

    monkeypatch.setattr(on_policy.CudaRolloutLoop, "_iterate", counted)
    options = ROLLOUTS | {"checkpoint_every": 10_000, "random_starts": 3}
    parl.train("ppo", **options, total_steps=54, runs=str(tmp_path))
    assert waits == [0, 0, 0]


@pytest.mark.usefixtures("here")
def test_a_run_trains_and_resumes_with_the_same_numbers(tmp_path: Path) -> None:
    whole = trained(tmp_path, name="whole", total_steps=60)
    assert whole.env_steps == 60
    # One transition sampled for each after the start: 42 of them, 4 at a time.
    assert whole.updates == 10
    records = [json.loads(line) for line in (Path(whole.path) / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["replay_size"] == 60
    assert np.isfinite(records[-1]["loss"])
    again = trained(tmp_path, name="again", total_steps=60)
    assert torch.equal(weights_of(whole.path), weights_of(again.path))
    half = trained(tmp_path, name="half", total_steps=30)
    assert half.updates == 3
    resumed = parl.resume(half.path, total_steps=60)
    assert (resumed.env_steps, resumed.updates) == (60, 10)
    assert torch.equal(weights_of(whole.path), weights_of(resumed.path))
    # Evaluations run on the CPU.
    assert parl.evaluate(whole.path, episodes=2, checkpoint="last").shape == (2,)


@pytest.mark.usefixtures("here")
def test_an_off_policy_iteration_does_not_synchronize(
    tmp_path: Path, needs_fake_driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, waits = 0, 0
    advance, step = off_policy.CudaOffPolicyLoop.advance, off_policy.CudaActor.step

    def waited() -> int:
        return fake_driver.figure("synchronizations") + fake_driver.figure("copies")

    def counted(self: Any, until_env_steps: int, seconds: float) -> None:
        nonlocal waits
        before = waited()
        advance(self, until_env_steps, seconds)
        waits += waited() - before

    def step_and_count(self: Any, env_steps: int) -> Any:
        nonlocal rounds
        rounds += 1
        assert isinstance(self._replay, CudaReplay)
        return step(self, env_steps)

    monkeypatch.setattr(off_policy.CudaOffPolicyLoop, "advance", counted)
    monkeypatch.setattr(off_policy.CudaActor, "step", step_and_count)
    begun = waited()
    run = trained(tmp_path, total_steps=45, checkpoint_every=10_000)
    assert run.updates > 3
    assert (rounds, waits) == (15, 0)
    # Only logging and checkpoints wait for the device.
    assert waited() > begun


@pytest.fixture
def graphs(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fake driver, lets learners on the CPU use the operations of a device, and replaces graphs."""
    if fake_driver.library() is None:
        return
    run_on_fake_driver.patch_torch(monkeypatch.setattr)
    monkeypatch.setattr(adam, "_RUST_MAX_SIZE", -1)
    monkeypatch.setattr(adam, "limit_norm", functools.partial(adam.limit_norm, check=False))

    def prepare(config: Any, device: Any, *modules: Any) -> None:
        execution.prepare(config, torch.device("cuda"), *modules)

    monkeypatch.setattr(off_policy_learner, "prepare", prepare)


@pytest.mark.usefixtures("graphs")
def test_an_update_is_one_graph(tmp_path: Path, needs_fake_driver: None) -> None:
    fields = {
        "obs": ((4,), "float32"),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
    }
    spec = parl.types.EnvSpec((4,), "float32", (), "int64", 2, "next_step")
    learner = dqn.DQN(dqn.Config(hidden=(8,), cuda_graph=True), spec).make_learner(1, "cuda")
    replay = parl.PrioritizedReplay(100, fields, num_envs=4, device="cuda", alpha=0.5)
    for _ in range(6):
        replay.add(
            obs=torch.randn(4, 4),
            action=torch.zeros(4, dtype=torch.int64),
            reward=torch.ones(4),
            terminated=torch.zeros(4, dtype=torch.bool),
        )
    update = off_policy.CudaUpdate(learner, replay, 16, as_graph=True)
    for call in range(3):
        update(0.4)
        assert replay.counters["updated"] == 16 * (call + 1)
    assert update._update._graph is None
    before = fake_driver.figure("launches"), fake_driver.figure("synchronizations")
    for call in range(5):
        update(0.4 + 0.1 * call)
    assert update._update._graph is not None
    assert fake_driver.figure("synchronizations") == before[1]
    # Draw, gather (all columns have one size), stamp, scatter: captured once and then replayed.
    assert fake_driver.figure("launches") - before[0] == 4
    assert replay.rng_state[1] == 8
    assert replay.counters["sampled"] == 8 * 16
    assert update._beta.item() == pytest.approx(0.8)
    replay.verify()


GRAPHED: dict[str, dict[str, Any]] = {
    "a2c": {"rollout_steps": 5},
    "dqn": {name: OPTIONS[name] for name in ("batch_size", "replay_ratio", "replay_capacity", "n_step")},
    "ppo": {"rollout_steps": 5, "minibatch_size": 5, "epochs": 2, "anneal_clip": True, "value_clip": 0.1},
    "pqn": {"rollout_steps": 5, "minibatch_size": 5, "epochs": 2, "epsilon_steps": 60},
}
GRAPHED["dqn"] |= {"learning_starts": 18, "noisy": True, "max_gradient_norm": 0.1}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are recorded."""
    found: list[Any] = []
    record = execution.record_graph
    monkeypatch.setattr(execution, "record_graph", lambda *work: found.append(record(*work)) or found[-1])
    return found


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(("name", "graphs_recorded"), [("ppo", 2), ("pqn", 2), ("a2c", 0)])
def test_presets_for_a_gpu_run(name: str, graphs_recorded: int, tmp_path: Path, recorded: list[Any]) -> None:
    steps = 32 if name == "a2c" else 6 * 16
    small = {"num_envs": 4, "random_starts": 2, "total_steps": 4 * (steps + 2), "evaluation_episodes": 0}
    run = parl.train(name, preset="atari-gpu", **small, quiet=True, runs=str(tmp_path))
    assert (run.env_steps, len(recorded)) == (small["total_steps"], graphs_recorded)
    assert run.updates == {"ppo": 12 * 4, "pqn": 6 * 2, "a2c": steps - 19}[name]
    config = tomllib.loads((Path(run.path) / "config.toml").read_text())
    assert (config["run"]["device"], config[name]["precision"]) == ("cuda", "bfloat16")


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("name", GRAPHED)
def test_graphs_give_the_same_numbers(
    name: str, tmp_path: Path, recorded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes end within the rollouts. Settings are those of the presets for a GPU, as far as possible."""
    precision = "bfloat16"
    if fake_driver.library() is None:
        # On a device convolutions are equal only if cuDNN is told so.
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        precision = "float32"
    options = {**{key: ROLLOUTS[key] for key in ("env", "env_options", "device", "num_envs", "hidden")}}
    options |= {"checkpoint_every": 120, "evaluation_episodes": 0, "quiet": True, "total_steps": 120}
    options |= GRAPHED[name] | {"precision": precision, "channels_last": True, "runs": str(tmp_path)}
    found: list[torch.Tensor] = []
    updates: list[int] = []
    for by_graphs in (False, True):
        run = parl.train(name, **options, cuda_graph=by_graphs, name=f"graphs-{by_graphs}")
        found.append(weights_of(run.path))
        updates.append(run.updates)
        assert len(recorded) == (0 if not by_graphs else 1 if name == "dqn" else 2)
    assert updates[0] == updates[1] > 3
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "cpu"}, "need the learner there too: device = 'cuda'"),
        ({"actors": 2}, "actors = 2: with environments on a CUDA device the run is one process: set 1"),
        ({"learners": 2}, "learners = 2: "),
        ({"double_buffer": True, "num_envs": 4}, "double_buffer = True: "),
        ({"initial_priority": "td"}, "initial_priority = 'td' needs environments on the CPU"),
    ],
)
def test_unsupported_settings_are_refused(
    options: dict[str, Any], text: str, tmp_path: Path, here: None
) -> None:
    with pytest.raises(ConfigError, match=text):
        trained(tmp_path, total_steps=30, **options)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [(object(), "object"), (SimpleNamespace(config=sac.Config()), "sac")],
)
def test_algorithms_that_act_on_the_cpu_only_are_refused(algorithm: Any, name: str) -> None:
    from parl.runtime.off_policy.setup import OffPolicySetup

    setup = OffPolicySetup(
        algorithm=algorithm,
        **dict.fromkeys(
            ("maker", "spec", "seed", "actors", "processes", "learners", "num_envs", "batch_size"), 1
        ),
        replay_capacity=1,
        pacer=None,
        device="cuda",
    )  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"^{name} cannot act on a device, as dqn and rainbow can"):
        off_policy.CudaOffPolicyLoop(setup)
