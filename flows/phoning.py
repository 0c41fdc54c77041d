"""The [phone] section of watchkeeper.toml."""

from typing import Annotated

from pydantic import Field, model_validator

from flows.errors import BadConfig
from flows.sections import Section
from flows.values import Seconds, Secret, known


class PhoneSection(Section):
    """Where `serve` takes acknowledgements: the address to listen on, and the one under which phones reach it."""

    listen: str = "127.0.0.1:8787"
    url: str = ""
    secret: Secret
    valid: Annotated[Seconds, Field(ge=60, le=30 * 86_400)] = 86_400.0
    pagerduty_secret: Secret | None = None
    opsgenie_secret: Secret | None = None

    @model_validator(mode="after")
    def _whole(self) -> "PhoneSection":
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) < 65536:
            raise ValueError(f"listen {self.listen!r} is no address; write 127.0.0.1:8787")
        if self.url and not self.url.startswith(("https://", "http://")):
            raise ValueError(f"url {self.url!r} must begin with https:// (or http:// within a network of yours)")
        for key in ("secret", "pagerduty_secret", "opsgenie_secret"):
            if wrong := _weak(key, known(getattr(self, key))):
                raise ValueError(wrong)
        return self

    def text_of(self, key: str) -> str:
        """A secret of it, "" where none is set. Raises BadConfig, SecretUnavailable for what a block of Prefect keeps."""
        found = getattr(self, key)
        text: str = "" if found is None else found.get_secret_value()
        if wrong := _weak(key, text):
            raise BadConfig(f"phone.{wrong}")
        return text

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def _weak(key: str, secret: str) -> str:
    """What is wrong with a secret; "" for nothing, and for none."""
    short = 0 < len(secret) < 16
    return f"{key} has less than 16 characters; `openssl rand -hex 32` makes a good one" if short else ""
