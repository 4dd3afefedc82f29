"""Pytest plugin that replaces a library's classes with parl's while the library's own tests run.

Loaded by ``run.py`` with ``-p substitute``; ``PARL_PEER`` names the library. Tests that
``not_applicable.toml`` lists under ``differs`` must fail, files under ``not_run`` are not collected. The
outcome of each test, and whether it created an object of one of parl's classes, is written to
``PARL_PEER_RESULTS`` as JSON.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

PEER = os.environ["PARL_PEER"]
LISTED: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "not_applicable.toml").read_text()
).get(PEER, {})


class ObjectCount:
    """Counts the objects of parl's classes that were created."""

    count = 0


def count_objects(cls: type[Any]) -> type[Any]:
    """Changes ``cls`` so that its objects are counted, and returns it."""
    make = cls.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        ObjectCount.count += 1
        make(self, *args, **kwargs)

    cls.__init__ = init
    return cls


def replace(package: str, others: dict[Any, Any]) -> None:
    """Replaces the keys of ``others`` by their values in all loaded modules of ``package``."""
    for name, module in list(sys.modules.items()):
        if module is not None and (name == package or name.startswith(package + ".")):
            for key, value in list(vars(module).items()):
                for theirs, ours in others.items():
                    if value is theirs:
                        setattr(module, key, ours)


def keep_names(cls: type[Any]) -> None:
    """Binds the methods of ``cls`` to the present names of their module, which are replaced later."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType):
            kept = FunctionType(
                method.__code__,
                dict(method.__globals__),
                name,
                method.__defaults__,
                method.__closure__,
            )
            kept.__kwdefaults__ = method.__kwdefaults__
            setattr(cls, name, functools.wraps(method)(kept))


def substitute_cpprb() -> None:
    import cpprb

    from parl.adapters import cpprb as ours

    def row(self: Any, index: Any) -> Any:
        """Replaces cpprb's private method that reads rows by index, which its tests call."""
        return self._take(np.atleast_1d(np.asarray(index, np.int64)))

    ours.ReplayBuffer._encode_sample = row

    def create_buffer(size: int, env_dict: Any = None, *, prioritized: bool = False, **settings: Any) -> Any:
        cls = ours.PrioritizedReplayBuffer if prioritized else ours.ReplayBuffer
        return cls(size, env_dict, **settings)

    replace(
        "cpprb",
        {
            cpprb.ReplayBuffer: count_objects(ours.ReplayBuffer),
            cpprb.PrioritizedReplayBuffer: ours.PrioritizedReplayBuffer,
            cpprb.create_buffer: create_buffer,
        },
    )


def record_cpprb() -> None:
    """Copies the files that cpprb itself writes to where its tests expect files of its version 1."""
    import cpprb

    class Recording(cpprb.ReplayBuffer):
        def save_transitions(self, file: Any, *args: Any, **kwargs: Any) -> None:
            super().save_transitions(file, *args, **kwargs)
            Path("v1").mkdir(exist_ok=True)
            shutil.copy(file, Path("v1") / Path(file).name)

    cpprb.ReplayBuffer = Recording


def substitute_stable_baselines3() -> None:
    import stable_baselines3  # noqa: F401 - loads the modules that name the buffers
    from stable_baselines3.common import buffers
    from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

    from parl.adapters import sb3

    for value in list(vars(buffers).values()):
        if isinstance(value, type):
            keep_names(value)
    uniform = count_objects(sb3.UniformReplayBuffer)
    replace("stable_baselines3", {ReplayBuffer: uniform, DictReplayBuffer: uniform})


def substitute_torchrl() -> None:
    import torchrl.data

    from parl.adapters import torchrl as ours

    replace(
        "torchrl",
        {
            torchrl.data.PrioritizedSampler: count_objects(ours.PrioritizedSampler),
            torchrl.data.TensorDictPrioritizedReplayBuffer: ours.TensorDictPrioritizedReplayBuffer,
        },
    )


results: dict[str, str] = {}
through: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    del config
    globals().get(os.environ.get("PARL_PEER_STEP", f"substitute_{PEER}"), lambda: None)()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.name in LISTED.get("not_run", {}) else None


def short(nodeid: str) -> str:
    """The id of a test without the folders."""
    file, *rest = nodeid.split("::")
    return "::".join([file.rsplit("/", 1)[-1], *rest])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PARL_PEER_STEP" in os.environ:
        return
    differs = LISTED.get("differs", {})
    known: set[str] = set()
    for item in items:
        name = short(item.nodeid)
        # Listed with its parameters, or without them for all parameters.
        names = (name, name.split("[")[0])
        known.update(names)
        if reason := next((differs[name] for name in names if name in differs), None):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    files = {name.split("::")[0] for name in known}
    for name in differs:
        if name not in known and name.split("::")[0] in files:
            results[name] = "listed, but there is no such test"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    before = ObjectCount.count
    done = yield
    if ObjectCount.count > before:
        through.add(short(item.nodeid))
    return done


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = short(report.nodeid)
    is_listed = hasattr(report, "wasxfail")
    if report.failed:
        xpassed = report.when == "call" and "[XPASS(strict)]" in str(report.longrepr)
        results[name] = "listed, but passed" if xpassed else "failed"
    elif report.skipped:
        results.setdefault(name, "differs" if is_listed else "skipped")
    elif report.when == "call":
        results.setdefault(name, "passed")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        results[short(report.nodeid)] = "failed"


def pytest_sessionfinish() -> None:
    if path := os.environ.get("PARL_PEER_RESULTS"):
        summary = {"counts": Counter(results.values()), "results": results, "through": sorted(through)}
        Path(path).write_text(json.dumps(summary, indent=1))
