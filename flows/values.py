"""Values of the configuration that are more than text: durations, and addresses that may hold a secret."""

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, SecretStr

# an address of these is no secret by itself; that of any other service is
PLAIN_SCHEMES = frozenset(
    ("folder", "json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos", "smtp", "smtps", "http", "https")
)
# whoever stands alone before the host of such an address is a token, not a user
WEB_SCHEMES = frozenset(("http", "https", "mlflow", "prometheus", "wandb"))
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_TELLING = re.compile(r"token|key|secret|pass|sig|auth", re.IGNORECASE)


def _seconds(value: object) -> object:
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise ValueError(f"{value!r} is no duration; write 30s, 5m, 1h or a number of seconds")
        return float(found[1]) * _SECONDS[found[2]]
    return value


def _address(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("expected text such as env:SLACK_URL, file:/run/secrets/slack or folder:alerts")
    kind, _, rest = value.partition(":")
    if kind == "env":
        found = os.environ.get(rest)
        if not found:
            raise ValueError(f"the environment variable {rest} is not set; export it where watchkeeper runs")
        return SecretStr(found.strip())
    if kind == "file":
        try:
            return SecretStr(Path(rest.removeprefix("//")).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ValueError(f"the file {rest} cannot be read ({reason})") from None
    if is_secret(value):
        raise ValueError(
            "a secret stands in plain text here; export it as an environment variable and write env:NAME, "
            "or put it into a file that only you can read and write file:/path"
        )
    return SecretStr(value)


def is_secret(url: str) -> bool:
    """Whether a URL holds a password or token, or belongs to a service whose URL is one."""
    scheme, colon, _ = url.partition(":")
    return not colon or scheme.lower() not in PLAIN_SCHEMES or holds_secret(url)


def holds_secret(url: str) -> bool:
    """Whether a password or token stands in a URL: before its host, or by name in its query or behind its #."""
    parts = urlsplit(url)
    named = [*parse_qsl(parts.query), *parse_qsl(parts.fragment.rpartition("?")[2])]
    alone = parts.username and parts.scheme.lower().rpartition("+")[2] in WEB_SCHEMES
    return bool(alone) or parts.password is not None or any(_TELLING.search(key) for key, _ in named)


def _secret(value: object) -> object:
    if isinstance(value, str) and value.partition(":")[0] not in ("env", "file"):
        raise ValueError("a secret stands in plain text here; write env:NAME or file:/path, and keep it there")
    found = _address(value)
    if not isinstance(found, SecretStr) or not found.get_secret_value():
        raise ValueError("is empty; put the secret where it says")
    return found


Seconds = Annotated[float, BeforeValidator(_seconds)]
Address = Annotated[SecretStr, BeforeValidator(_address)]
Secret = Annotated[SecretStr, BeforeValidator(_secret)]  # only by env:NAME or file:/path
