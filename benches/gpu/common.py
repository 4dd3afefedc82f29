"""What both scripts of this folder need: their arguments, the machine's names, where records go."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import parl

TWENTY = (
    "pong breakout space_invaders seaquest ms_pacman montezuma_revenge qbert freeway pitfall asteroids "
    "enduro beam_rider robotank solaris tutankham riverraid centipede hero battle_zone demon_attack"
).split()


def arguments(**defaults: Any) -> argparse.Namespace:
    """The command line; both scripts know all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="some games and short runs")
    parser.add_argument("--games", nargs="*", help="ids; all that have ROMs unless named")
    parser.add_argument("--envs", type=int, default=defaults.get("envs", 256))
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 2000))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "records")
    return parser.parse_args()


def here(folder: Path) -> list[str]:
    """Ids of the games whose ROMs lie in a folder."""
    return [game.id for game in parl.atari.games() if any(folder.glob(f"{game.id}.*"))]


def machine(device: str) -> dict[str, Any]:
    """Device, driver, versions and commit."""
    import torch

    from parl import _native
    from parl.cuda import nvrtc_folders

    found = torch.cuda.get_device_properties(device)
    commit = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": found.name,
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": found.total_memory,
        "parl": metadata.version("parl-rl"),
        "torch": torch.__version__,
        "commit": commit or "unknown",
        **dict(_native.cuda_report(nvrtc_folders())),
    }


class Record:
    """A file of one line of JSON per finding, written as they come."""

    def __init__(self, folder: Path, name: str, facts: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        device = str(facts["device"]).lower().replace(" ", "-")
        self.path = folder / f"{facts['date']}-gpu-{name}-{device}.jsonl"
        self.path.write_text("")
        self.add("machine", **facts)

    def add(self, what: str, **values: Any) -> None:
        line = json.dumps({"what": what, **values})
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")
