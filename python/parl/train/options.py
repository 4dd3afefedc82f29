"""The keywords of :func:`parl.train`: each setting of a run and of an algorithm, with its type.

Generated from the settings' dataclasses by ``python tests/train/test_options.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from gymnasium import Space
    from torch import device as Device
    from torch.nn import Module


class RunOptions(TypedDict, total=False):
    """Settings of a run."""

    env_options: Mapping[str, object] | tuple[str, ...]
    evaluation_env_options: Mapping[str, object] | tuple[str, ...]
    seed: int | None
    total_steps: int
    num_envs: int
    schedule: Literal["async", "deterministic"]
    init_from: str | PathLike[str] | None
    evaluation_episodes: int
    evaluation_every: int
    stop_at_return: float | None
    checkpoint_every: int
    checkpoint_every_s: float
    log_every_s: float
    device: str | Device
    runs: str | PathLike[str]
    name: str | None
    logger: Sequence[str]
    quiet: bool
    verbose: bool
    random_starts: int | Literal["auto"]
    start_states: str | PathLike[str] | None
    start_states_share: float
    engine: Literal["local", "ray"]
    ray_address: str | None
    threads: int | Literal["auto"]
    actors: int | Literal["auto"]
    actor_kind: Literal["process", "thread"] | Literal["auto", "process", "thread"]
    learners: int | Literal["auto"]
    learner_kind: Literal["process", "thread"]
    replay_ratio: float
    batch_size: int
    replay_capacity: int
    learning_starts: int
    park_actors: bool
    double_buffer: bool
    prefetch: int | Literal["auto"]
    priority_delay: int
    ray_steps: int
    gradient_compression: Literal["none", "fp16", "bf16"]
    dataset: str
    data: tuple[str, ...]
    member_batches: int | Literal["auto"]
    max_lag: int
    predictors: int
    trainers: int
    rollouts_per_update: int
    tune_every_s: float


class Options(RunOptions, total=False):
    """Settings of a run or an algorithm."""

    torso: str | Callable[[Space[Any]], Module] | None
    network: str | Callable[[Space[Any], Space[Any]], Module] | None
    rollout_steps: int
    gamma: float
    reward_scale: float
    learning_rate: float
    anneal: bool
    optimizer: Literal["adam", "rmsprop"]
    optimizer_epsilon: float
    max_gradient_norm: float
    normalize_observations: bool
    normalize_rewards: bool
    frame_deltas: bool
    hidden: tuple[int, ...]
    precision: Literal["float32", "bfloat16"]
    channels_last: bool
    cuda_graph: bool
    gae_lambda: float
    value_coefficient: float
    entropy_coefficient: float
    normalize_advantages: bool
    shared_layers: bool
    activation: Literal["tanh", "relu"]
    initial_log_std: float
    images: Literal["nature", "impala", "small"] | Literal["nature", "mlp"]
    lstm: int
    advantage: Literal["gae", "vtrace"]
    window: int
    env_groups: int
    rho_max: float
    c_max: float
    n_step: int
    prioritized: bool
    alpha: float
    beta: float
    beta_steps: int
    priority_epsilon: float
    initial_priority: Literal["max", "td"]
    goals: Literal["none", "future", "final", "episode"]
    goals_per_transition: float
    freeze_after: int
    compile: bool
    double: bool
    dueling: bool
    dueling_hidden: int
    distribution: Literal["none", "c51", "qr", "iqn"]
    atoms: int
    value_min: float
    value_max: float
    atom_spacing: Literal["equal", "sqrt"]
    quantiles: int
    policy_quantiles: int
    cosines: int
    noisy: bool
    noisy_sigma: float
    munchausen: float
    munchausen_temperature: float
    munchausen_clip: float
    cql_alpha: float
    huber_delta: float
    layer_norm: bool
    adam_epsilon: float
    target_period: int
    target_tau: float
    epsilon_first: float
    epsilon_last: float
    epsilon_steps: int
    epsilon_spread: float
    minibatch_size: int
    sigma: float
    weight_decay: float
    parents: int
    elites: int
    epochs: int
    clip: float
    anneal_clip: bool
    value_clip: float
    target_kl: float
    td_lambda: float
    image_features: int
    critic_learning_rate: float
    random_steps: int
    noise_correlation: float
    critics: int
    target_critics: int
    temperature: float
    learn_temperature: bool
    target_entropy: float | None
    target_entropy_share: float
    exploration_noise: float
    exploration_spread: float
    policy_delay: int
    preactivation_penalty: float
    target_noise: float
    target_noise_clip: float
