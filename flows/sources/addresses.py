"""Which source reads an address. Each is loaded only when one of its addresses is opened."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from flows.sources.contract import Source, refuse
from flows.values import holds_secret

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_KNOWN = "https://wandb.ai/..., wandb://, mlflow://, sqlite:///...#RUN_ID, prometheus+http://, s3://, gs://, hf:// or https://"
# a local file, whatever it is: what the catalogue does for a path
OpenFile = Callable[..., list[Source]]


def scheme_of(target: str) -> str:
    """`https` of https://...; "" for a path."""
    found = _SCHEME.match(target)
    return found[1].lower() if found else ""


def open_address(
    target: str, open_file: OpenFile, *, step_key: str | None, run: str | None, cache: Path | None
) -> list[Source]:
    """The runs at an address. `open_file` opens the copy of a remote file, which is kept under `cache`.

    Raises BadInput for an address that nothing reads or that names no run, SourceUnavailable without an answer.
    """
    scheme = scheme_of(target)
    if holds_secret(target):
        place = f"{scheme}://{urlsplit(target).hostname or '...'}"
        mend = "an address is stored and shown; put the login into ~/.netrc or the service's environment variables"
        raise refuse(place, "there is a password, key or token in this address", mend)
    if scheme.startswith("wandb"):
        return [_wandb(target, step_key, run, sdk=scheme == "wandb+sdk")]
    if scheme.startswith("mlflow") or scheme == "sqlite":
        return [_mlflow(target, run)]
    if scheme.startswith("prometheus+"):
        return [_prometheus(target, run)]
    if scheme in {"http", "https"}:
        return _from_browser(target, open_file, step_key, run, cache)
    from flows.sources.remote import open_remote, reads

    if reads(scheme):
        return open_remote(target, open_file, step_key, run, cache)
    raise refuse(f"{scheme}://...", "this kind of address cannot be read", f"name a local file or folder, or {_KNOWN}")


def _from_browser(
    target: str, open_file: OpenFile, step_key: str | None, run: str | None, cache: Path | None
) -> list[Source]:
    """What stands in the address bar of a tracker's page, else a file to download."""
    from flows.sources.mlflow_server import is_mlflow
    from flows.sources.wandb_address import is_wandb

    if is_mlflow(target):
        return [_mlflow(target, run)]
    if is_wandb(target):
        return [_wandb(target, step_key, run, sdk=False)]
    from flows.sources.remote import open_remote

    return open_remote(target, open_file, step_key, run, cache)


def _wandb(target: str, step_key: str | None, run: str | None, *, sdk: bool) -> Source:
    from flows.sources.wandb_address import wandb_address

    address = wandb_address(target)
    if sdk:
        from flows.sources.wandb_sdk import open_with_sdk

        return open_with_sdk(address, target, step_key, run)
    from flows.sources.wandb_online import open_wandb

    return open_wandb(address, target, step_key, run)


def _mlflow(target: str, run: str | None) -> Source:
    if scheme_of(target) == "sqlite":
        from flows.sources.mlflow_database import open_database

        return open_database(target, run)
    from flows.sources.mlflow_server import open_server

    return open_server(target, run)


def _prometheus(target: str, run: str | None) -> Source:
    from flows.sources.prometheus import open_prometheus

    return open_prometheus(target, run)
