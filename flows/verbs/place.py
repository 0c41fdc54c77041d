"""Where the store is when nobody says it: the configuration's, else the default path."""

from pathlib import Path

DEFAULT = Path("watchkeeper.duckdb")
CONFIG = Path("watchkeeper.toml")


def store_path(given: Path | None) -> Path:
    """The path given (or in WATCHKEEPER_STORE), else `store.url` of watchkeeper.toml here, else watchkeeper.duckdb here."""
    if given is not None:
        return given
    if CONFIG.exists():
        import tomllib

        url = tomllib.loads(CONFIG.read_text(encoding="utf-8")).get("store", {}).get("url")
        if url:
            return Path(url)
    return DEFAULT
