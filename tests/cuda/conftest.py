"""These tests need a CUDA driver: a device's, or the double of `tests/kernels/test_driver_double.py`."""

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
    reason = "no CUDA driver here: tests/kernels/test_driver_double.py runs them with the driver's double"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True, scope="session")
def stand_in() -> None:
    if HAS_DRIVER:
        import driver

        driver.stand_in()


@pytest.fixture
def double() -> Iterator[None]:
    """Only with the driver's double, whose settings are put back afterwards."""
    import driver

    if driver.library() is None:
        pytest.skip("this driver is a real one")
    before = {name: driver.figure(name) for name in ("lazy", "memory", "devices", "version", "architecture")}
    yield
    for name, value in before.items():
        driver.put(name, value)
