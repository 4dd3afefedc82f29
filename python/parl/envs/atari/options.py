"""The keywords of :func:`parl.make_vec`, with their types: those of :class:`parl.AtariVectorEnv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnasium.vector import AutoresetMode


class CommonAtariOptions(TypedDict, total=False):
    """Keywords that :class:`parl.AtariVectorEnv` and :func:`parl.jax.make` take alike."""

    num_threads: int
    max_num_frames_per_episode: int | None
    full_action_space: bool
    autoreset_mode: AutoresetMode | str
    img_height: int | None
    img_width: int | None
    grayscale: bool
    stack_num: int | None
    maxpool: bool
    noop_max: int
    episodic_life: bool
    life_loss_info: bool
    reward_clipping: bool | Literal["clamp", "sign"]
    use_fire_reset: bool
    channel_order: Literal["last", "first"]
    life_loss: Literal["plain", "reports", "ends", "any", "continues"] | None
    padding: Literal["zero", "reset"]
    noops: Literal["after_fire", "before_fire", "numpy"]
    max_num_steps_per_episode: int
    limit_counts: Literal["steps", "console"]
    allow_terminated_and_truncated: bool
    show_last_frame: bool
    boot: Literal["exact", "snapshot"] | None
    ram_info: bool
    reward_dtype: str


class AtariOptions(CommonAtariOptions, total=False):
    """Keywords of :class:`parl.AtariVectorEnv`, which describes them."""

    batch_size: int
    thread_affinity_offset: int
    repeat_action_probability: float | Sequence[float]
    continuous: bool
    continuous_action_threshold: float
    frameskip: int | tuple[int, int] | Sequence[Any]
    device: str
    obs_type: Literal["gray", "rgb", "index", "ram", "objects"] | None
    mode: int | Sequence[int | None] | None
    difficulty: int | Sequence[int | None] | None
    ordered: bool
    sound: bool
    output: Literal["numpy", "torch"]
    render_mode: Literal["rgb_array", "rgb_grid", "human"] | None
    players: int
    sliding_buffer_planes: int
    patches: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None
    ram: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None
    hold: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None
    modifications: str | Sequence[Any] | None
