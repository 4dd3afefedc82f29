"""``python -m parl`` is the command ``parl``."""

import sys

from parl.cli import main

sys.exit(main())
