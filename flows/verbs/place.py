"""Where the store is when nobody says it: the configuration's, else the default path."""

import os
from pathlib import Path

from flows.errors import BadConfig

DEFAULT = Path("watchkeeper.duckdb")
CONFIG = Path("watchkeeper.toml")


def store_path(given: Path | None) -> Path:
    """The path given (or in WATCHKEEPER_STORE), else that of the configuration ($WATCHKEEPER_CONFIG or the one here)."""
    if given is not None:
        return given
    config = Path(os.environ.get("WATCHKEEPER_CONFIG") or CONFIG)
    if config.exists():
        import tomllib

        try:
            url = tomllib.loads(config.read_text(encoding="utf-8-sig")).get("store", {}).get("url")
        except (OSError, ValueError) as error:
            raise BadConfig(f"{config}: cannot be read as TOML: {error}") from None
        return config.parent / (url if isinstance(url, str) else DEFAULT)
    return DEFAULT
