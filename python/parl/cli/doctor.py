"""``parl doctor``: print versions, hardware and ROM files of this machine."""

from __future__ import annotations

from collections.abc import Sequence

from parl.errors import ParlError


def doctor_command(arguments: Sequence[str]) -> int:
    """Prints the report, or does what an option asks for. Returns the exit status."""
    from parl.run import doctor

    match list(arguments):
        case []:
            lines = doctor.report()
        case ["--sweep"]:
            gone = doctor.remove_stale_segments()
            lines = [(f"removed {place}",) for place in gone] or [("no stale segments",)]
        case ["--env"]:
            lines = doctor.presets()
        case ["--env", preset]:
            lines = doctor.preset(preset)
        case ["--compile"]:
            lines = doctor.compile_kernels("cuda")
        case ["--compile", device]:
            lines = doctor.compile_kernels(device)
        case _:
            raise ParlError(
                "parl doctor takes --env [preset], --compile [device], --sweep or nothing, got "
                f"{' '.join(arguments)!r}"
            )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0
