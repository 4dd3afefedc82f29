"""Runs the command ``parl`` for ``python -m parl``."""

import sys

from parl.cli import main

sys.exit(main())
