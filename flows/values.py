"""Values of the configuration that are more than text: durations, and addresses that may hold a secret."""

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, SecretStr

from flows.blocks import KIND, secret_of

# an address of these is no secret by itself; that of any other service is
PLAIN_SCHEMES = frozenset(
    ("folder", "json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos", "smtp", "smtps", "http", "https")
)
# where a secret may stand, before the colon of a value
KEEPERS = frozenset(("env", "file", "block"))
# whoever stands alone before the host of such an address is a token, not a user
WEB_SCHEMES = frozenset(("http", "https", "mlflow", "prometheus", "wandb"))
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_TELLING = re.compile(r"token|key|secret|pass|sig|auth", re.IGNORECASE)


class BlockSecret(SecretStr):
    """What a block of Prefect keeps: asked for when it is first needed, and kept as long as this configuration is."""

    def __init__(self, name: str) -> None:
        super().__init__("")
        self._name = name

    def __bool__(self) -> bool:
        return True

    def get_secret_value(self) -> str:
        """The secret. Raises BadConfig, SecretUnavailable."""
        self._secret_value = self._secret_value or secret_of(self._name)
        return self._secret_value


def known(secret: SecretStr | None) -> str:
    """The secret without asking anybody for it: "" for none, and for one that only a block knows."""
    return "" if secret is None or isinstance(secret, BlockSecret) else secret.get_secret_value()


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
    if kind == "block":
        return _block(rest)
    if is_secret(value):
        raise ValueError(
            "a secret stands in plain text here; export it as an environment variable and write env:NAME, put it into a "
            f"file that only you can read and write file:/path, or into a block of Prefect and write block:{KIND}/name"
        )
    return SecretStr(value)


def _block(text: str) -> BlockSecret:
    kind, _, name = text.partition("/")
    if kind != KIND or not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(
            f"is no Secret block of Prefect; write block:{KIND}/name, the name as Prefect has it (a-z, 0-9, -)"
        )
    return BlockSecret(name)


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
    if isinstance(value, str) and value.partition(":")[0] not in KEEPERS:
        raise ValueError(
            f"a secret stands in plain text here; write env:NAME, file:/path or block:{KIND}/name, and keep it there"
        )
    found = _address(value)
    if not isinstance(found, BlockSecret) and not (isinstance(found, SecretStr) and known(found)):
        raise ValueError("is empty; put the secret where it says")
    return found


Seconds = Annotated[float, BeforeValidator(_seconds)]
Address = Annotated[SecretStr, BeforeValidator(_address)]
Secret = Annotated[SecretStr, BeforeValidator(_secret)]  # only by env:NAME, file:/path or block:secret/name
