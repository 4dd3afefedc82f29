"""These tests need a CUDA driver: a real one, or the fake one of `tests/cuda/test_with_fake_driver.py`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from parl import _native

HAS_DRIVER = dict(_native.cuda_report([]))["CUDA driver"].startswith("for CUDA")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_DRIVER:
        return
    reason = "no CUDA driver here: tests/cuda/test_with_fake_driver.py runs them with a fake one"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True, scope="session")
def patch_torch() -> None:
    if HAS_DRIVER:
        import fake_driver

        fake_driver.patch_torch()


@pytest.fixture
def needs_fake_driver() -> Iterator[None]:
    """Skips the test unless the driver is the fake one. Restores the fake driver's settings afterwards."""
    import fake_driver

    if fake_driver.library() is None:
        pytest.skip("this driver is a real one")
    before = {
        name: fake_driver.figure(name) for name in ("lazy", "memory", "devices", "version", "architecture")
    }
    yield
    for name, value in before.items():
        fake_driver.set_figure(name, value)
