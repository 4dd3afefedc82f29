"""Files and output of a run: its directory, settings, metrics, progress and plots.

This package does not depend on algorithms, environments or the runtime; ``parl.train`` combines them.
"""

from parl.run.config import check_keys, dump_toml, load_toml, parse_count
from parl.run.directory import RunDirectory
from parl.run.metrics import MetricsLog, read_metrics
from parl.run.progress import Progress

__all__ = [
    "MetricsLog",
    "Progress",
    "RunDirectory",
    "check_keys",
    "dump_toml",
    "load_toml",
    "parse_count",
    "read_metrics",
]
