"""Stored embeddings: frozen convolutions, conversion of the replay, equal values, resumed runs, errors."""

import dataclasses
import threading
import time

import numpy as np
import pytest
import torch

import parl
from parl.algos import dqn, rainbow, sac
from parl.envs import EnvMaker, spec_of
from parl.errors import ConfigError
from parl.replay.conversion import Conversion
from parl.runtime import checkpoint
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.off_policy.deterministic import DeterministicOffPolicyLoop
from parl.runtime.off_policy.freezing import stores_embeddings
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.runtime.shared_counters import STEPS
from parl.train import train

OPTIONS = {"img_height": 36, "img_width": 36, "num_threads": 1, "max_num_steps_per_episode": 25}
FREEZE_AFTER = 200
SMALL = {"hidden": (16,)}
CONFIGS = {
    "dqn": lambda **own: (dqn.DQN, dqn.Config(**SMALL, n_step=3, **own)),
    "rainbow": lambda **own: (rainbow.Rainbow, rainbow.Config(**SMALL, atoms=11, **own)),
    "sac": lambda **own: (sac.SAC, sac.Config(**SMALL, image_features=8, random_steps=100, **own)),
}


def envs(**options):
    return lambda num_envs: parl.AtariVectorEnv("breakout", num_envs, **{**OPTIONS, **options})


def setup_of(name="dqn", actors=1, total_steps=10**9, freeze_after=FREEZE_AFTER, env=None, **own):
    maker = EnvMaker(env or envs())
    spec = spec_of(maker(1))
    kind, config = CONFIGS[name](freeze_after=freeze_after, **own)
    return OffPolicySetup(
        algorithm=kind(config, spec),
        maker=maker,
        spec=spec,
        seed=0,
        actors=actors,
        learners=1,
        num_envs=4,
        batch_size=8,
        replay_capacity=300,
        pacer=Pacer(1.0, 8, 4, 60, total_steps),
    )


def run(setup, steps, saved=None):
    loop = DeterministicOffPolicyLoop(setup, saved)
    loop.advance(steps, 0.0)
    return loop


def stacked_rows(replay):
    """Observations of all rows that can be sampled, by ticket."""
    found = {}
    for _ in range(30):
        batch = replay.sample(64, mode="uniform")
        found |= dict(zip(batch.tickets.tolist(), batch.obs, strict=True))
    return found


@pytest.mark.parametrize("name", sorted(CONFIGS))
@pytest.mark.parametrize("autoreset", ["NextStep", "SameStep"])
def test_rows_are_the_embeddings_of_their_images(name, autoreset):
    """The replay of images is kept for the comparison."""
    setup = setup_of(name, env=envs(autoreset_mode=autoreset))
    loop = run(setup, FREEZE_AFTER - 8)
    assert not loop.learner.frozen and not stores_embeddings(loop._replay)
    images = loop._replay
    kept = {}
    replace, loop._replace_replay = loop._replace_replay, lambda replay: kept.setdefault("replay", replay)
    loop.advance(FREEZE_AFTER, 0.0)
    loop._replace_replay = replace
    assert loop.learner.frozen and stores_embeddings(kept["replay"])
    expected, found = stacked_rows(images), stacked_rows(kept["replay"])
    assert len(found) > 150
    for ticket in found.keys() & expected.keys():
        exact = loop.learner.embed(expected[ticket][None])[0]
        np.testing.assert_allclose(found[ticket], exact, rtol=2e-3, atol=1e-4)
    assert found.keys() == expected.keys()


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_values_of_embeddings_equal_those_of_images(name):
    loop = run(setup_of(name), 400)
    learner = loop.learner
    images = np.random.default_rng(0).integers(0, 255, (32, 4, 36, 36), np.uint8)
    embeddings = torch.from_numpy(learner.embed(images))
    assert embeddings.dtype == torch.float16
    assert embeddings.shape == (32, *learner.embedding_shape)
    networks = (
        [learner.online, learner.target]
        if name != "sac"
        else [learner.networks.actor, learner.networks.critics, learner.targets.critics]
    )
    with torch.inference_mode():
        for network in networks:
            from_images, from_embeddings = network(torch.from_numpy(images)), network(embeddings)
            torch.testing.assert_close(from_images, from_embeddings, rtol=5e-3, atol=5e-3)
    policy = loop._actors[0].policy
    np.testing.assert_array_equal(policy.embed(images), embeddings.numpy())
    same = policy.act_greedily(images) == policy.act_greedily(policy.embed(images))
    assert same.mean() > 0.9


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_frozen_convolutions_do_not_change_and_everything_else_learns(name):
    loop = run(setup_of(name), FREEZE_AFTER + 4)

    def weights():
        learner = loop.learner
        whole = learner.online if name != "sac" else learner.networks
        return {key: value.clone() for key, value in whole.named_parameters()}

    def targets():
        learner = loop.learner
        whole = learner.target if name != "sac" else learner.targets
        return {key: value.clone() for key, value in whole.named_parameters()}

    before = weights()
    frozen = {key for key in before if "convolutions" in key}
    assert len(frozen) == (12 if name == "sac" else 6)
    at_once = targets()
    assert all(torch.equal(before[key], at_once[key]) for key in frozen)
    loop.advance(FREEZE_AFTER + 200, 0.0)
    after, later = weights(), targets()
    for key in frozen:
        assert torch.equal(before[key], after[key]) and torch.equal(after[key], later[key])
    learns = [key for key in before if key not in frozen and not torch.equal(before[key], after[key])]
    assert len(learns) >= len(before) - len(frozen) - 2  # dead units
    assert loop.report()["embedded_share"] == 1.0


@pytest.mark.parametrize(
    ("name", "save_at", "own"),
    [
        ("dqn", 120, {}),
        ("dqn", 320, {}),
        ("dqn", 320, {"initial_priority": "td"}),
        ("rainbow", 320, {}),
        ("sac", 320, {"prioritized": True, "initial_priority": "td"}),
    ],
)
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path, name, save_at, own):
    """Saved before the convolutions are frozen, or after; with batches drawn in advance, which are images."""
    setup = dataclasses.replace(setup_of(name, actors=2, **own), prefetch=2, priority_delay=1)
    whole = run(setup, save_at)
    whole.save(tmp_path)
    whole.advance(500, 0.0)
    resumed = DeterministicOffPolicyLoop(setup, checkpoint.read(tmp_path))
    resumed.advance(500, 0.0)
    assert resumed.learner.frozen and stores_embeddings(resumed._replay)
    assert resumed.updates == whole.updates
    one, other = whole.learner.state_dict(), resumed.learner.state_dict()
    for key in ("weights", "target_weights", "mean"):
        assert torch.equal(one[key], other[key]), key
    for a, b in zip(*(loop._replay.sample(32).items() for loop in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(a[1], b[1])


def test_a_run_saved_right_after_freezing_begins_with_images_in_its_queue(tmp_path):
    setup = dataclasses.replace(setup_of(), prefetch=3)
    whole = run(setup, FREEZE_AFTER)
    assert whole._prefetch_queue.ready[0][0].obs.dtype == torch.uint8
    whole.save(tmp_path)
    whole.advance(400, 0.0)
    resumed = DeterministicOffPolicyLoop(setup, checkpoint.read(tmp_path))
    resumed.advance(400, 0.0)
    assert torch.equal(resumed.learner.weights, whole.learner.weights)


def test_a_double_buffer_stores_embeddings_too():
    loop = run(dataclasses.replace(setup_of(), double_buffer=True), 400)
    assert stores_embeddings(loop._replay) and len(loop._replay) == 300
    again = run(dataclasses.replace(setup_of(), double_buffer=True), 400)
    assert torch.equal(loop.learner.weights, again.learner.weights)


def wait_for(loop, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        loop.advance(loop.env_steps + 4, 1.0)


@pytest.mark.parametrize("own", [{}, {"double_buffer": True}, {"prefetch": 1}])
def test_threads_go_on_while_rows_are_converted_in_the_background(own, tmp_path, monkeypatch):
    step, proceed = Conversion.step, threading.Event()
    monkeypatch.setattr(Conversion, "step", lambda self: proceed.wait() and step(self))
    setup = dataclasses.replace(setup_of(actors=2, initial_priority="td"), **own)
    loop = AsyncOffPolicyLoop(setup)
    try:
        wait_for(loop, lambda: loop.learner.frozen)
        images = loop._replay
        before = loop.updates
        wait_for(loop, lambda: loop.updates > before)
        (tmp_path / "during").mkdir()
        loop.save(tmp_path / "during")
        assert loop._replay is images
        proceed.set()
        wait_for(loop, lambda: stores_embeddings(loop._replay))
        wait_for(loop, lambda: loop.env_steps >= FREEZE_AFTER + 600)
        assert loop.report()["embedded_share"] == 1.0
        batch = loop._replay.sample(32)
        assert batch.obs.dtype == np.float16 and np.isfinite(batch.obs.astype(np.float32)).all()
        (tmp_path / "after").mkdir()
        loop.save(tmp_path / "after")
    finally:
        proceed.set()
        loop.close()
    for folder, embedded in (("during", False), ("after", True)):
        resumed = AsyncOffPolicyLoop(setup, checkpoint.read(tmp_path / folder))
        try:
            assert resumed.learner.frozen and stores_embeddings(resumed._replay) is embedded
            steps = resumed.env_steps
            wait_for(resumed, lambda: stores_embeddings(resumed._replay))  # noqa: B023
            wait_for(resumed, lambda: resumed.env_steps > steps + 100)  # noqa: B023
        finally:
            resumed.close()


def test_an_actor_that_has_not_run_since_the_change_is_saved_with_embeddings(tmp_path):
    setup = setup_of(actors=2)
    loop = AsyncOffPolicyLoop(setup)
    try:
        wait_for(loop, lambda: loop.learner.frozen)
        loop._counters.running_actors = 1, 1  # only actor 1
        wait_for(loop, lambda: stores_embeddings(loop._replay))
        loop.save(tmp_path)
    finally:
        loop.close()
    resumed = AsyncOffPolicyLoop(setup, checkpoint.read(tmp_path))
    try:
        assert stores_embeddings(resumed._replay)
        steps = resumed._counters.actor[:, STEPS]
        before = steps.copy()
        # An actor that was saved with images would end the run with an error.
        wait_for(resumed, lambda: (steps > before).all())
        assert resumed._replay.sample(32).obs.dtype == np.float16
    finally:
        resumed.close()


def test_an_error_of_the_background_thread_ends_the_run(monkeypatch):
    loop = AsyncOffPolicyLoop(setup_of())
    try:
        monkeypatch.setattr(Conversion, "step", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            wait_for(loop, lambda: False)
    finally:
        loop.close()


RUN = {"learning_starts": 60, "replay_capacity": 300, "num_envs": 4, "total_steps": 400, "batch_size": 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"actor_kind": "process"},
            "actor_kind = 'process': freeze_after = 200 converts a replay in the memory",
        ),
        ({"learners": 2}, "learners = 2: freeze_after = 200 converts"),
        ({"engine": "ray"}, "engine = 'ray': freeze_after = 200 converts"),
        ({"learning_starts": 300}, "freeze_after = 200 is below learning_starts = 300"),
        ({"compile": True}, "freeze_after = 200 changes the shape of batches, which compile = True keeps"),
        ({"freeze_after": -1}, "freeze_after = -1: -1 is not a whole number"),
        ({"torso": "own_torsos:make"}, "freeze_after = 200 freezes parl's convolutions, which torso = "),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options, message, tmp_path):
    given = {"freeze_after": 200, "env_options": {"img_height": 36, "img_width": 36}, **RUN, **options}
    with pytest.raises(ConfigError, match=message):
        train("dqn", env="parl/Breakout-v0", runs=str(tmp_path), quiet=True, **given)


def test_vectors_and_dictionaries_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="freeze_after = 200"):
        train("dqn", env="CartPole-v1", freeze_after=200, runs=str(tmp_path), quiet=True)
    spec = dataclasses.replace(
        setup_of().spec,
        observation_shape=(),
        observation_parts=(("camera", (4, 36, 36), "uint8"), ("speed", (2,), "float32")),
        frame_stack=1,
    )
    with pytest.raises(ConfigError, match=r"needs observations that are one image; .* camera, speed"):
        dqn.DQN(dqn.Config(freeze_after=200), spec)


def test_a_policy_of_a_frozen_run_takes_images(tmp_path):
    options = {
        "freeze_after": 200,
        "env_options": {"img_height": 36, "img_width": 36},
        **RUN,
        **SMALL,
        "evaluation_episodes": 0,
    }
    result = train(
        "dqn", env="parl/Breakout-v0", runs=str(tmp_path), quiet=True, schedule="deterministic", **options
    )
    policy = parl.load(result.path)
    image = np.random.default_rng(0).integers(0, 255, (4, 36, 36), np.uint8)
    assert 0 <= int(policy.predict(image)[0]) < 4
    metrics = parl.run.read_metrics(result.path / "metrics.jsonl")
    assert metrics[-1]["embedded_share"] == 1.0 and metrics[-1]["replay_bytes"] > 0
