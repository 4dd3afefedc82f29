"""Installs wheels and runs `checks.py` with each, on this processor and in emulators: `make try-wheels`.

Each line that the checks print must be that of `expected.txt`. `tools/emulators.sh` gets emulators, and
Pythons for other systems, `tools/free_threaded.sh` a free-threaded one; what is missing is reported as not
tried. QEMU accesses memory in the order of this machine's processor, and says nothing about speed.

    python tests/wheels/run.py [--dist dist] [--torch] [--python PATH]... [--record] [NAME...]
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EMULATORS = ROOT / "target" / "emulators"
EXPECTED = HERE / "expected.txt"
QEMU = EMULATORS / "qemu" / "usr" / "bin"
ARM = EMULATORS / "aarch64"
FREE_THREADED = ROOT / "target" / "python3.14t" / "bin" / "python3.14t"
# numpy 2.4 chooses code that these processors do not have unless this is set.
NEHALEM = {"OPENBLAS_CORETYPE": "Nehalem"}
# The packages of later versions for ARM need CUDA.
TORCH = "torch==2.6.0"
MANYLINUX, MUSL = "manylinux_2_28", "musllinux_1_2"


@dataclass
class Place:
    """Something that runs a wheel.

    Attributes:
        name: what runs it.
        wheel: part of the wheel's name, its platform.
        abi: part of the wheel's name, the interface of Python that it needs.
        platform: of the packages, as uv names it.
        command: the interpreter.
        env: variables.
        flags: flags of `/proc/cpuinfo` that this needs.
        torch: whether packages of torch exist.
    """

    name: str
    wheel: str
    platform: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    torch: bool = True
    abi: str = "abi3"


def places(pythons):
    here, machine = [sys.executable], platform.machine()
    qemu_x86 = str(QEMU / "qemu-x86_64-static")

    def native(name, *flags, **env):
        return Place(
            f"{machine}, {name}", f"{MANYLINUX}_{machine}", f"{machine}-manylinux_2_28", here, env, flags
        )

    def old(model, **env):
        command = [qemu_x86, "-cpu", model, *here]
        return Place(f"x86_64, {model}", f"{MANYLINUX}_x86_64", "x86_64-manylinux_2_28", command, env)

    def emulated_arm(name, **env):
        command = [str(QEMU / "qemu-aarch64-static"), "-L", str(ARM), str(ARM / "usr/bin/python3.11")]
        return Place(name, f"{MANYLINUX}_aarch64", "aarch64-manylinux_2_28", command, env)

    yield native("this processor")
    for python in pythons:
        name = f"{machine}, Python {version_of([python])}"
        yield Place(name, f"{MANYLINUX}_{machine}", f"{machine}-manylinux_2_28", [python], torch=False)
    free = native("Python 3.14t")
    yield replace(free, command=[str(FREE_THREADED)], torch=False, abi="cp314t")
    yield native("scalar", SUMTREE_PATH="scalar")
    if machine == "aarch64":
        yield native("NEON", SUMTREE_PATH="neon")
        return
    yield native("AVX2", "avx2", SUMTREE_PATH="avx2")
    yield native("AVX-512", "avx512f", SUMTREE_PATH="avx512")
    yield old("SandyBridge")
    yield old("Nehalem", **NEHALEM)
    python = str(EMULATORS / "musl" / "bin" / "python3.11")
    yield Place("x86_64, musl", f"{MUSL}_x86_64", "x86_64-unknown-linux-musl", [python], torch=False)
    yield emulated_arm("aarch64, emulated")
    yield emulated_arm("aarch64, emulated, scalar", SUMTREE_PATH="scalar")
    yield emulated_arm("aarch64, emulated, NEON", SUMTREE_PATH="neon")


def cpu_flags():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.split(":")[1].split())
    return set()


def install(wheel, place, python, torch):
    """Unpacks the wheel and the packages that it needs for the platform; returns the folder."""
    name = f"{place.platform}-{python}-{place.abi}{'-torch' if torch else ''}"
    folder = ROOT / "target" / "wheels" / name
    shutil.rmtree(folder, ignore_errors=True)
    packages = [str(wheel), "numpy", "gymnasium[classic-control]" if torch else "gymnasium"]
    if torch and place.command[-1] != sys.executable:  # which has them already
        packages += ["cloudpickle", "rich", "safetensors", "tomli-w", "tyro", TORCH]
    uv = ["uv", "pip", "install", "--quiet", "--target", str(folder)]
    if place.abi == "abi3":
        uv += ["--python-platform", place.platform, "--python-version", python]
    else:  # uv has no name for its interface
        uv += ["--python", place.command[-1]]
    subprocess.run([*uv, "--only-binary", ":all:", *packages], check=True)
    return folder


def version_of(command):
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([*command, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def contents(wheel):
    """Lines about a wheel: its size and its largest files."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.infolist()
        inside = [file for file in files if ".dist-info/" not in file.filename]
        largest = max(inside, key=lambda file: file.file_size)
        return (
            f"{wheel.stat().st_size / 1e6:.1f} MB; {len(inside)} files, the largest "
            f"{largest.filename} with {largest.file_size / 1e6:.1f} MB"
        )


def differences(expected, printed):
    """What differs from the expected lines; a part that was skipped does not."""
    found = []
    for line in printed:
        name, _, value = line.partition(": ")
        if not value.startswith("skipped") and expected.get(name) != value:
            found.append(f"{name} is {value}, expected {expected.get(name)}")
    return found


def read(lines):
    return dict(line.split(": ", 1) for line in lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="only places whose names contain one of these")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--torch", action="store_true", help="also train with torch, where it has packages")
    parser.add_argument(
        "--python", action="append", default=[], metavar="PATH", help="another interpreter of this machine"
    )
    parser.add_argument("--record", action="store_true", help="write expected.txt from the first place")
    arguments = parser.parse_args()
    if not os.environ.get("ALE_ROMS_DIR"):
        sys.exit("set ALE_ROMS_DIR to the folder of the ROM files")
    rows, folders, failed, have = [], {}, False, cpu_flags()
    for place in places(arguments.python):
        if arguments.names and not any(name in place.name for name in arguments.names):
            continue
        wheels = sorted(arguments.dist.glob(f"parl_rl-*-{place.abi}-*{place.wheel}*.whl"))
        missing = [flag for flag in place.flags if flag not in have]
        if (
            not wheels
            or missing
            or not all(Path(part).exists() for part in place.command if part.startswith("/"))
        ):
            reason = (
                f"this processor has no {missing[0]}"
                if missing
                else "no wheel"
                if not wheels
                else "no emulator or Python"
            )
            rows.append((place.name, f"not tried: {reason}"))
            continue
        wheel, torch = wheels[-1], arguments.torch and place.torch
        python = version_of(place.command)
        key = place.platform, python, place.abi, torch
        if key not in folders:
            folders[key] = install(wheel, place, python, torch)
            print(f"{wheel.name}: {contents(wheel)}")
        start = time.monotonic()
        command = [*place.command, str(HERE / "checks.py"), *(["--torch"] if torch else [])]
        env = {**os.environ, "PYTHONPATH": str(folders[key]), "PYTHONNOUSERSITE": "1", **place.env}
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=folders[key])
        lines = done.stdout.splitlines()
        if arguments.record:
            EXPECTED.write_text(done.stdout)
            arguments.record = False
        wrong = differences(read(EXPECTED.read_text().splitlines()), lines)
        if str(folders[key]) not in done.stderr:
            wrong.append("parl was not imported from the wheel")
        skipped = [line.partition(":")[0] for line in lines if ": skipped" in line]
        if done.returncode:
            wrong.append(f"status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        failed |= bool(wrong)
        result = "; ".join(wrong) if wrong else f"{len(lines) - len(skipped)} parts as expected"
        if skipped:
            result += f", not tried: {', '.join(skipped)}"
        rows.append((place.name, f"Python {python}, {time.monotonic() - start:.0f} s: {result}"))
        print(f"{place.name}: {rows[-1][1]}", flush=True)
    print("\n| where | result |\n|---|---|")
    for name, result in rows:
        print(f"| {name} | {result} |")
    if not any("expected" in result for _, result in rows):
        sys.exit("nothing was tried")
    return failed


if __name__ == "__main__":
    sys.exit(main())
