"""``parl doctor``: print versions, hardware and ROM files of this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from parl.cli.arguments import UsageError, aligned, parse


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """Print versions, hardware, ROM files, CUDA and shared memory of this machine."""

    env: tuple[str, ...] | None = None
    """Print every keyword of this preset of the Atari environments; without a name, compare the presets."""
    compile: tuple[str, ...] | None = None
    """Compile the CUDA kernels for this device (default cuda) into the kernel cache."""
    sweep: bool = False
    """Remove shared memory that ended processes left behind."""


def doctor_command(arguments: Sequence[str]) -> int:
    """Prints the report, or does what an option asks for. Returns the exit status."""
    from parl.run import doctor

    # Without options the report needs no package besides numpy.
    options = parse(DoctorOptions, "parl doctor", arguments) if arguments else DoctorOptions()
    for name in ("env", "compile"):
        given = getattr(options, name)
        if given is not None and len(given) > 1:
            raise UsageError(f"parl doctor: --{name} takes one name, got {' '.join(given)!r}")
    if (options.env is not None) + (options.compile is not None) + options.sweep > 1:
        raise UsageError("parl doctor: --env, --compile and --sweep exclude each other")
    if options.sweep:
        gone = doctor.remove_stale_segments()
        lines = [(f"removed {place}",) for place in gone] or [("no stale segments",)]
    elif options.env is not None:
        lines = doctor.preset(*options.env) if options.env else doctor.presets()
    elif options.compile is not None:
        lines = doctor.compile_kernels(*(options.compile or ("cuda",)))
    else:
        lines = doctor.report()
    print(aligned(lines))
    return 0
