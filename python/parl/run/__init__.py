"""What a run leaves behind and shows: its directory, settings, metrics, progress and plots.

Nothing here knows an algorithm, an environment or a process; ``parl.train`` puts them together.
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
