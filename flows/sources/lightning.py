"""Where Lightning's CSVLogger puts its metrics.csv: `lightning_logs/version_0` or `NAME/version_0`. The file is an ordinary table."""

import re
from pathlib import Path

_FILE = "metrics.csv"
_VERSION = re.compile(r"version_(\d{1,9})")


def is_metrics_file(path: Path) -> bool:
    """Whether its folder says more about the run than its own name."""
    return path.name == _FILE


def metrics_files(folder: Path) -> list[Path]:
    """Those of the versions in a folder, or in its `lightning_logs`, in the order of their numbers."""
    found = [*folder.glob(f"version_*/{_FILE}")] or [*folder.glob(f"lightning_logs/version_*/{_FILE}")]
    numbered = [(int(match[1]), path) for path in found if (match := _VERSION.fullmatch(path.parent.name))]
    return [path for _, path in sorted(numbered) if path.stat().st_size]
