"""The [phone] section of watchkeeper.toml."""

from typing import Annotated

from pydantic import Field, model_validator

from flows.sections import Section
from flows.values import Seconds, Secret


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
            found = getattr(self, key)
            if found is not None and len(found.get_secret_value()) < 16:
                raise ValueError(f"{key} has less than 16 characters; `openssl rand -hex 32` makes a good one")
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)
