"""Policies on the Hugging Face Hub: the folder of a policy, its upload and its download.

The folder holds what :func:`parl.load` reads (``policy.safetensors``, ``config.toml``, ``run.json``,
``counters.json``) and a model card (``README.md``) with a learning curve and a video if there are any. It has
no pickle: an environment that is a function is not part of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parl._system import write_atomically
from parl.errors import ConfigError, RunDirectoryError
from parl.run import RunDirectory
from parl.run.config import dump_toml
from parl.run.directory import HUB
from parl.run.integrity import describe_file, with_checksum
from parl.runtime import policy_file
from parl.train.settings import pickled_functions

if TYPE_CHECKING:
    from parl.train.policy import Policy

# All that is downloaded.
_FILES = (policy_file.NAME, "config.toml", "run.json", "counters.json")
_CURVE, _VIDEO = "learning-curve.png", "replay.mp4"
# Settings that name files and machines.
_LOCAL = ("runs", "name", "init_from", "start_states", "start_states_share", "data", "ray_address")
# Content of run.json that says nothing about the machine.
_PUBLIC = ("format", "id", "created", "versions", "environment", "cleared")


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ConfigError("the Hugging Face Hub needs huggingface_hub: pip install 'parl-rl[hub]'") from error
    return huggingface_hub


def download(source: str) -> Path:
    """Downloads ``hf://user/repository`` or ``hf://user/repository@revision``; returns its folder."""
    match = re.fullmatch(r"hf://([^/@]+/[^/@]+)(?:@(.+))?", source)
    if match is None:
        raise ConfigError(
            f"{source!r} is not of the form hf://user/repository or hf://user/repository@revision"
        )
    return Path(_hub().snapshot_download(match[1], revision=match[2], allow_patterns=list(_FILES)))


def push(policy: Policy, repo_id: str, private: bool, token: str | None, message: str) -> str:
    """Uploads ``policy``; see :meth:`parl.train.policy.Policy.push_to_hub`."""
    api = _hub().HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        save(policy, folder, f"{HUB}{repo_id}")
        api.create_repo(repo_id, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message))


def save(policy: Policy, folder: str | Path, source: str | None = None) -> Path:
    """Writes the folder of ``policy``; see :meth:`parl.train.policy.Policy.save_for_hub`.

    Args:
        policy: the policy.
        folder: created if missing.
        source: the argument of :func:`parl.load` in the model card; by default the folder's name.

    Raises:
        ConfigError: a function without an import path makes the network; or ``folder`` is a run directory.
    """
    if (Path(folder) / "checkpoints").exists():
        raise ConfigError(f"{folder} is a run directory, which would be overwritten: name another folder")
    for name in pickled_functions(policy.config.algorithm):
        raise ConfigError(
            f"{name} is a function without an import path, which a folder without pickles cannot hold: write "
            "it into a module and train with its import path, module:function"
        )
    folder, run = Path(folder), RunDirectory.open(policy.run)
    folder.mkdir(parents=True, exist_ok=True)
    table = run.config
    table["run"] = {key: value for key, value in table["run"].items() if key not in _LOCAL}
    if "dataset" in table["run"]:  # Without one other settings would have other bounds.
        table["run"]["dataset"] = Path(table["run"]["dataset"]).name
    settings = dump_toml(table)
    about = {key: value for key, value in run.about.items() if key in _PUBLIC}
    policy_file.write(folder, policy.acting, policy.algorithm, policy.spec, policy.env_steps)
    write_atomically(folder / "config.toml", settings)
    if "env.pkl" in run.about["files"] or run.about.get("function_env"):
        about["function_env"] = True  # Its environment is a function, which is left out.
    about["files"] = {"config.toml": describe_file(folder / "config.toml")}
    write_atomically(folder / "run.json", with_checksum(about))
    counters = (policy.folder / "counters.json").read_text(encoding="utf-8")
    write_atomically(folder / "counters.json", counters)
    if not folder.samefile(run.path):  # otherwise it has its curve and video
        for name in (_CURVE, _VIDEO):  # those of another policy
            (folder / name).unlink(missing_ok=True)
        _copy_curve(run, folder / _CURVE)
        videos = sorted((run.path / "videos").glob("*.mp4"), key=lambda path: path.stat().st_mtime_ns)
        for video in [run.path / _VIDEO, *videos]:
            if video.is_file():
                shutil.copyfile(video, folder / _VIDEO)
    card = _card(policy, settings, json.loads(counters).get("score"), source or folder.name, folder)
    write_atomically(folder / "README.md", card)
    return folder


def _copy_curve(run: RunDirectory, out: Path) -> None:
    """Draws the run's learning curve, or copies the one of a folder that :func:`save` wrote."""
    if (run.path / _CURVE).is_file():
        shutil.copyfile(run.path / _CURVE, out)
    elif run.metrics.is_file():
        from parl.run.plot import plot_runs

        # Without matplotlib, or of a run too short for a finished episode, there is no curve.
        with contextlib.suppress(ConfigError, RunDirectoryError):
            plot_runs([run.path], out)


def _card(policy: Policy, settings: str, score: Any, source: str, folder: Path) -> str:
    """The model card: metadata of the Hub as JSON, which is YAML too, then the text."""
    name, env = policy.algorithm, policy.env_maker.name
    data: dict[str, Any] = {
        "library_name": "parl",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-reinforcement-learning", "parl", name, env],
    }
    told = "The run played no evaluation of this policy."
    if score is not None:
        mean, deviation = score["evaluation_return"], score["evaluation_return_std"]
        value = f"{mean:.2f} +/- {deviation:.2f}"
        told = f"Mean return {value} (standard deviation over episodes). Protocol: {score['protocol']}."
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": env, "type": env},
            "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": value, "verified": False}],
        }
        data["model-index"] = [{"name": name, "results": [result]}]
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in data.items())
    pictures = f"![Learning curve]({_CURVE})\n\n" if (folder / _CURVE).is_file() else ""
    pictures += f"[Video of an episode]({_VIDEO})\n\n" if (folder / _VIDEO).is_file() else ""
    return f"""---
{lines}
---

# {name} on {env}

A policy trained with [parl](https://pypi.org/project/parl-rl/) after {policy.env_steps:,} transitions.

{told}

{pictures}## Use

```python
import parl

policy = parl.load({source!r})
envs = policy.env_maker(1)
obs, _ = envs.reset(seed=0)
actions, state = policy.predict(obs)
```

`{policy_file.NAME}` holds the parameters by name and can be read without parl.

## Settings

```toml
{settings.strip()}
```
"""
