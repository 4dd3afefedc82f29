"""parl: parallel actors and learners.

A prioritized replay on a lock-free K-ary sum tree, the Atari 2600 by the thousand, and the algorithms that
use them. ``import parl`` needs numpy alone; everything else is loaded when it is first used.
"""

from parl._native import __version__

__all__ = ["__version__"]
