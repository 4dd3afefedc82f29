"""Blocks of code on pages of the documentation, and how commands in them are run."""

import re

# The language and the code of each block.
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.M | re.S)
# Runs a line of an `sh` block: `parl` in this process, another program in one of its own.
COMMANDS = r"""
def _commands(text):
    import shlex
    import subprocess

    from parl.cli import main

    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "parl":
            try:
                status = main(words[1:])
            except SystemExit as end:
                status = end.code
        elif words:
            status = subprocess.run(words).returncode
        else:
            continue
        assert not status, line
"""
