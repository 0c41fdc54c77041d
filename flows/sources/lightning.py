"""Where Lightning's CSVLogger puts its metrics.csv, an ordinary table: `lightning_logs/version_0` or `NAME/version_0`."""

import re
from pathlib import Path

_FILE = "metrics.csv"
_VERSION = re.compile(r"version_(\d{1,9})")


def is_metrics_file(path: Path) -> bool:
    """Whether it is that of a version: its folder says more about the run than its own name."""
    return path.name == _FILE and bool(_VERSION.fullmatch(path.resolve().parent.name))


def metrics_files(folder: Path) -> list[Path]:
    """Those of the versions in a folder, or in its `lightning_logs`, in the order of their numbers."""
    found = [*folder.glob(f"version_*/{_FILE}")] or [*folder.glob(f"lightning_logs/version_*/{_FILE}")]
    numbered = [(int(match[1]), path) for path in found if (match := _VERSION.fullmatch(path.parent.name))]
    return [path for _, path in sorted(numbered) if path.is_file() and path.stat().st_size]
