"""What `watchkeeper doctor` says of the ways out: channels, what has not left by them, and the endpoint for phones."""

import http.client
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flows.config import Config
from flows.errors import BadConfig, WatchkeeperError
from flows.phoning import PhoneSection
from flows.sections import RunSection
from flows.verbs.looked_at import BROKEN, OK, STALE, UNCHECKED, Finding

if TYPE_CHECKING:
    from flows.store import Store


def outbox(store: "Store") -> Iterator[Finding]:
    """Every message that is not where it belongs: refused, failing, or waiting at the door."""
    failing = {row["channel"] for row in store.failing_channels()}
    for row in store.undelivered():
        channel = row["channel"]
        if row["error"] is not None:
            state = BROKEN if channel in failing else STALE  # later messages have got through
            parts = [f"{row['dead']} refused for good"] if row["dead"] else []
            parts += [f"{row['failed']} tried again"] if row["failed"] else []
            yield Finding(f"outbox {channel}", state, f"undelivered: {', '.join(parts)}: {row['error']}")
        if row["held"]:
            yield Finding(f"outbox {channel}", OK, f"{row['held']} held back: {row['held_by']}")


def channels(config: Config) -> Iterator[Finding]:
    """Each channel and whether it can be opened, and the runs of which a page would reach nobody."""
    from flows.channels.catalogue import open_configured

    if not config.channel:
        yield Finding("channels", UNCHECKED, "none configured: alerts stay in the store")
    for each in config.channel:
        try:
            open_configured(each)
        except WatchkeeperError as error:
            yield Finding(f"channel {each.name}", BROKEN, str(error))
        else:
            routes = sum(each.name in route.to for route in config.route)
            way = f" by {routes} route{'s' * (routes > 1)}" if routes else ""
            yield Finding(
                f"channel {each.name}", OK, f"from {each.min_severity} on{way}; can be opened (--send-test sends)"
            )
    for run in config.run:
        yield from _unheard(config, run)


def _unheard(config: Config, run: RunSection) -> Iterator[Finding]:
    """A page of which no channel would be told, or only where a role of the run is named."""
    name = run.name or run.label
    if not config.channel or any(config.takes(each, name, run.tags, (), 4) for each in config.channel):
        return
    roles = sorted({role for route in config.route for role in route.roles})
    by_role = [role for role in roles if any(config.takes(c, name, run.tags, (role,), 4) for c in config.channel)]
    told = f"only pages about {', '.join(by_role)} reach a channel" if by_role else "a page would reach no channel"
    yield Finding(f"routes of {name}", STALE if by_role else BROKEN, f"{told}; add a [[route]] or [[channel]] for it")


def send_tests(config: Config, wanted: str) -> Iterator[Finding]:
    """A test message to one channel, or to "all". Raises BadConfig for a name that no channel has."""
    from flows.channels.catalogue import open_configured
    from flows.channels.contract import Outgoing, message_id, thread_id
    from flows.messages.monitor import test_message

    chosen = [each for each in config.channel if wanted in ("all", each.name)]
    if not chosen:
        known = ", ".join(each.name for each in config.channel) or "none"
        raise BadConfig(f"--send-test {wanted!r}: no channel has this name; there are {known}. `all` tests every one.")
    for each in chosen:
        message = test_message(each.name)
        mark = f"test-{each.name}-{time.time():.0f}"
        try:
            receipt = open_configured(each).send(Outgoing(message, message_id(mark), thread_id(mark)))
        except WatchkeeperError as error:
            yield Finding(f"test {each.name}", BROKEN, " ".join(str(error).split()))
        except Exception as error:  # noqa: BLE001  # the text of a broken plugin may hold its URL
            yield Finding(f"test {each.name}", BROKEN, f"broke with {type(error).__name__}")
        else:
            yield Finding(f"test {each.name}", OK, f"the channel took it{': ' * bool(receipt.note)}{receipt.note}")


def phone_of(phone: PhoneSection) -> Finding:
    """Whether the endpoint answers here; whether a phone reaches it from outside cannot be seen from here."""
    try:
        for key in ("secret", "pagerduty_secret", "opsgenie_secret"):
            phone.text_of(key)
    except WatchkeeperError as error:
        return Finding("phone", BROKEN, str(error))
    host, port = phone.address
    line = http.client.HTTPConnection(host, port, timeout=5)
    try:
        line.request("GET", "/health")
        answers = line.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        answers = False
    finally:
        line.close()
    if not answers:
        return Finding("phone", UNCHECKED, f"nothing answers on {phone.listen}; `watchkeeper serve` starts it")
    return Finding("phone", OK, f"answers on {phone.listen}; links lead to {phone.url or 'nowhere (no phone.url)'}")


def heartbeat(config: Config) -> Finding:
    """Whether an outside monitor is told that passes go well; it is not pinged from here."""
    url = config.watch.heartbeat_url
    if url is None:
        return Finding("heartbeat", UNCHECKED, "none configured: nobody notices when the watch itself dies")
    try:
        url.get_secret_value()
    except WatchkeeperError as error:
        return Finding("heartbeat", BROKEN, str(error))
    return Finding("heartbeat", UNCHECKED, "configured; a ping would say that a pass went well")
