"""Forms of games are chosen by name and do not change results; `parl doctor` lists the measured ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import parl
from parl import _native
from parl.envs.atari import groups
from parl.errors import AtariError


def made(games: Any = "breakout", envs: int = 2, **options: Any) -> Any:
    return parl.AtariVectorEnv(games, envs, device="cuda", **options)


@pytest.mark.parametrize("form", ["plain", "grouped:9"])
def test_a_form_for_all_environments(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CUDA_FORM", form)
    envs, reference = made(), parl.AtariVectorEnv("breakout", 2, boot="snapshot")
    assert envs.forms == {"breakout": form}
    assert not envs.calibrated
    assert (envs.reset(seed=2)[0].numpy(force=True) == reference.reset(seed=2)[0]).all()
    for step in range(3):
        actions = np.array([1, step])
        ours, theirs = envs.step(torch.from_numpy(actions))[0], reference.step(actions)[0]
        assert (ours.numpy(force=True) == theirs).all()
    assert (envs.get_state() == reference.get_state()).all()
    envs.close()


@pytest.mark.parametrize("lanes", ["1", "3", "32"])
def test_any_number_of_environments_in_a_warp(lanes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CUDA_LANES", lanes)
    games = ["breakout", "pong"]
    envs, reference = made(games, 7), parl.AtariVectorEnv(games, 7, boot="snapshot")
    assert (envs.reset(seed=2)[0].numpy(force=True) == reference.reset(seed=2)[0]).all()
    for step in range(3):
        actions = np.arange(7) % (step + 2)
        ours, theirs = envs.step(torch.from_numpy(actions))[0], reference.step(actions)[0]
        assert (ours.numpy(force=True) == theirs).all()
    assert (envs.get_state() == reference.get_state()).all()
    envs.close()


@pytest.mark.parametrize(
    ("variable", "most", "value"),
    [
        ("PARL_CUDA_LANES", 32, "0"),
        ("PARL_CUDA_LANES", 32, "33"),
        ("PARL_CUDA_LANES", 32, "few"),
        ("PARL_CUDA_WARPS", 16, "17"),
    ],
)
def test_variables_outside_of_their_bounds(
    variable: str, most: int, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f'{variable} is "{value}", expected 1 to {most}'):
        made()


def test_the_number_of_resident_warps_does_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_CUDA_WARPS", "1")
    envs, reference = made("pong", 100), parl.AtariVectorEnv("pong", 100, boot="snapshot")
    assert (envs.reset(seed=2)[0].numpy(force=True) == reference.reset(seed=2)[0]).all()
    actions = np.arange(100) % 6
    ours, theirs = envs.step(torch.from_numpy(actions))[0], reference.step(actions)[0]
    assert (ours.numpy(force=True) == theirs).all()
    assert (envs.get_state() == reference.get_state()).all()
    envs.close()


def test_forms_change_between_steps() -> None:
    games = ["breakout", "pong"]
    envs, reference = made(games, 4, batch_size=2), parl.AtariVectorEnv(games, 4, boot="snapshot")
    envs.reset(seed=0)
    reference.reset(seed=0)
    envs.recv()
    for forms, said in (
        (("plain",), ("plain", "plain")),
        (("grouped:2", "plain"), ("grouped:2", "plain")),
        (("plain", "grouped"), ("plain", "grouped:4")),
    ):
        envs.choose(*forms)
        assert envs.forms == dict(zip(games, said, strict=True))
        # Each of the two groups makes one step.
        for first in (0, 2):
            envs.send(np.ones(2, np.int64), range(first, first + 2))
            envs.recv()
        reference.step(np.ones(4, np.int64))
        assert (envs.get_state() == reference.get_state()).all()
    envs.close()


def test_unknown_forms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = made()
    before = envs.forms
    for forms, message in (
        (
            ("odd",),
            r"form is .?odd, window 0.*, expected grouped with window 0, 2, 4 or 9, or plain with",
        ),
        (("predicated",), r"form is .?predicated, window 0.*, expected grouped with .* or plain with"),
        (("grouped:3",), "grouped, window 3"),
        (("plain:4",), "plain, window 4"),
        (("grouped:x",), "form is 'grouped:x', expected grouped:<window>"),
        (("grouped:",), "form is 'grouped:'"),
        (("plain", "plain"), "2 forms for 1 games, expected one form, or one per game"),
        ((), "0 forms for 1 games"),
    ):
        with pytest.raises(AtariError, match=message):
            envs.choose(*forms)
        assert envs.forms == before
    envs.close()
    with pytest.raises(ValueError, match="closed"):
        envs.choose("plain")
    monkeypatch.setenv("PARL_CUDA_FORM", "grouped:7")
    with pytest.raises(AtariError, match="grouped, window 7"):
        made()


def test_parl_doctor_lists_saved_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Path(os.environ.get("PARL_CACHE_DIR", Path.home() / ".cache" / "parl")) / "kernels"
    (tmp_path / "kernels").mkdir()
    for kernel in kept.glob("*.kernel"):
        (tmp_path / "kernels" / kernel.name).symlink_to(kernel)
    monkeypatch.setenv("PARL_CACHE_DIR", str(tmp_path))

    def told() -> list[tuple[str, str]]:
        return [line for line in _native.cuda_report([]) if line[0].startswith("fastest on ")]

    envs = made("pong", 1)
    assert told() == []
    form, window, _ = min(envs.calibrate(), key=lambda row: row[2])
    assert envs.forms == {"pong": groups.format_form(form, window)}
    envs.close()
    [(name, finding)] = told()
    version = dict(_native.cuda_report([]))["CUDA driver"].removeprefix("for ")
    assert name.endswith(f", driver for {version}")
    assert finding == f"{form} {window}: pong" if form == "grouped" else f"{form}: pong"
