"""Which W&B run an address names, on which server, and the key for it."""

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from flows.sources.contract import refuse
from flows.sources.web import netrc_login, origin

CLOUD = "https://api.wandb.ai"
_SITES = frozenset({"wandb.ai", "www.wandb.ai", "api.wandb.ai", "app.wandb.ai"})
_RUN = re.compile(r"/(?P<entity>[^/]+)/(?P<project>[^/]+)/runs/(?P<run>[^/]+)(?:/.*)?")
_PLAIN_ID = re.compile(r"[\w%-]+")  # on a host that may serve files as well: no dot, as in runs/loss.csv
_LOGIN = "set WANDB_API_KEY, or add {host} to ~/.netrc"


@dataclass(frozen=True)
class WandbAddress:
    """`base` is the server of the API, without a slash at its end."""

    base: str
    entity: str
    project: str
    run: str

    @property
    def login(self) -> str:
        """How to be allowed to read it."""
        return _LOGIN.format(host=urlsplit(self.base).hostname)


def is_wandb(target: str) -> bool:
    """Whether a http(s) address is that of a W&B run, or of the W&B site."""
    parts = urlsplit(target)
    host = parts.hostname or ""
    found = _RUN.fullmatch(parts.path)
    if host in _SITES or host == _configured_host():
        return True
    return found is not None and bool(_PLAIN_ID.fullmatch(found["run"])) and not parts.fragment


def wandb_address(target: str) -> WandbAddress:
    """Of an address from the browser, whatever follows the run in it, or of `wandb://entity/project/id`.

    Raises BadInput for one that names no run.
    """
    parts = urlsplit(target)
    if parts.scheme.lower() in {"http", "https"}:
        found = _RUN.fullmatch(parts.path)
        if found is None:
            mend = "open one run in the browser and copy its address (.../ENTITY/PROJECT/runs/ID)"
            raise refuse(target, "this W&B page is no run", mend)
        base = CLOUD if parts.hostname in _SITES else origin(target)
        if parts.hostname == _configured_host():
            base = _configured()
        return WandbAddress(base, *(unquote(found[name]) for name in ("entity", "project", "run")))
    names = [unquote(name) for name in (parts.netloc, *parts.path.split("/")) if name]
    if len(names) == 4 and names[2] == "runs":
        del names[2]
    if len(names) != 3:
        raise refuse(target, "no W&B run", "write wandb://ENTITY/PROJECT/ID")
    return WandbAddress(_configured() or CLOUD, *names)


def api_key(base: str) -> str | None:
    """The key for a server: $WANDB_API_KEY for the server that is configured (the cloud if none is), or ~/.netrc.

    A key is never shown to another server than its own.
    """
    if base == (_configured() or CLOUD) and (key := os.environ.get("WANDB_API_KEY", "").strip()):
        return key
    found = netrc_login(urlsplit(base).hostname or "")
    return found[1] if found else None


def _configured() -> str:
    return os.environ.get("WANDB_BASE_URL", "").strip().rstrip("/")


def _configured_host() -> str | None:
    return urlsplit(_configured()).hostname
