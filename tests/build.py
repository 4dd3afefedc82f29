"""Compiles what several tests use: the fake driver with its kernels, and kernels for the newest GPUs.

`make build-tests` runs it, so that no test waits for these compilers.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent / "cuda"))
sys.path.append(str(Path(__file__).parent / "cuda" / "device"))

import fake_driver
import nvrtc

import compiled
from parl import _native
from parl.cuda import nvrtc_folders

RUNNER = Path(__file__).parent / "cuda" / "device" / "run_on_fake_driver.py"


def main() -> None:
    # In another process, because the fake driver must be found when the process starts.
    runner = [sys.executable, str(RUNNER)]
    code = "from parl.run import doctor; doctor.compile_kernels('cuda')"
    environment = fake_driver.build()
    processor = subprocess.Popen([*runner, "-c", code], env=environment)
    if nvrtc.has_nvrtc:
        os.environ["PARL_CACHE_DIR"] = str(compiled.FOLDER / "kernels")
        _native.cuda_compile(nvrtc.oldest_of_each_family()[-1], nvrtc_folders(), True)
    if processor.wait():
        sys.exit("the kernels do not compile on the fake driver")


if __name__ == "__main__":
    main()
