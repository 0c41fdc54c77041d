"""Put on PYTHONPATH by tests: every process writes what it connects to beyond loopback to $WATCHKEEPER_NET_LOG."""

import os
import sys

_LOG = os.environ.get("WATCHKEEPER_NET_LOG")
_NEAR = {"localhost", "::1", "::", "0.0.0.0", "", "None"}


def _hook(event: str, args: tuple) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = args[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        address = (args[0],)
    else:
        return
    host = str(address[0]) if isinstance(address, tuple) else ""  # a path of a Unix socket is near
    if host not in _NEAR and not host.startswith("127."):
        with open(_LOG, "a") as log:  # noqa: PTH123
            log.write(f"{event} {address} by {sys.argv[:3]}\n")


if _LOG:
    sys.addaudithook(_hook)
