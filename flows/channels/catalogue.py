"""Which channel serves which URL."""

from pathlib import Path

from flows.channels.apprise_bridge import open_apprise
from flows.channels.contract import Channel
from flows.channels.folder import Folder
from flows.channels.smtp import SCHEMES, open_smtp
from flows.errors import BadConfig


def open_channel(name: str, url: str, timeout_seconds: float = 15.0) -> Channel:
    """folder:PATH (or folder://PATH), a mail URL, or any other Apprise URL. Raises BadConfig without the URL in it."""
    scheme, colon, rest = url.partition(":")
    if not colon or not rest.strip("/"):
        raise BadConfig(
            f"channel {name!r}: no URL; write folder:PATH, mailtos://..., or an Apprise URL such as slack://..."
        )
    if scheme.lower() == "folder":
        return Folder(name, Path(rest.removeprefix("//")))
    if scheme.lower() in SCHEMES:
        return open_smtp(name, url, timeout_seconds)
    return open_apprise(name, url, timeout_seconds)
