"""Measures the time that NVRTC needs to compile the kernels of environments; needs no device.

python benches/gpu/compile.py [--architecture 90]

Prints wall-clock and CPU seconds and bytes of machine code, for each file alone and then for all together.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

from parl import _native
from parl.cuda import nvrtc_folders

FILES = ("step.cu", "reset.cu", "states.cu")


def compiled(architecture: int, files: list[str]) -> tuple[float, float, int]:
    """Wall-clock seconds, CPU seconds of all threads, and bytes; the cache is empty."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PARL_CACHE_DIR"] = cache
        wall, processor = time.perf_counter(), time.process_time()
        _, _, made = _native.cuda_compile(architecture, nvrtc_folders(), False, files)
        return (
            time.perf_counter() - wall,
            time.process_time() - processor,
            sum(size for _, size, _ in made),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", type=int, default=90)
    architecture = parser.parse_args().architecture
    print(dict(_native.cuda_report(nvrtc_folders()))["NVRTC"], f"on {os.cpu_count()} processors")
    for files in [*([name] for name in FILES), []]:
        wall, processor, size = compiled(architecture, files)
        name = files[0] if files else "all at once"
        print(f"{name:12} sm_{architecture} {wall:6.1f} s {processor:6.1f} s of CPU time {size:9,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
