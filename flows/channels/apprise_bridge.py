"""Every service that Apprise knows: Slack, Discord, Teams, Telegram, ntfy, json:// and the rest, by its URL.

Apprise answers only yes or no and tells the reason to its log. So the log is held back during a send and read for the
status code and `retry_after`.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from flows.channels.apprise_log import held_back
from flows.channels.contract import Outgoing, Receipt, TryLater
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.messages.as_markdown import as_markdown
from flows.messages.as_text import as_text
from flows.messages.plain import quiet
from flows.messages.split import split

# these show plain content as Markdown and do not escape it themselves; all others get plain text
MARKDOWN_READERS = frozenset({"discord", "mmost", "mmosts", "rocket", "rockets", "zulip", "guilded", "revolt"})
_STATUS = re.compile(r"\berror=(\d{3})\b")
_PAUSE = re.compile(r"retry_after[\"']?\s*[:=]\s*(\d+(?:\.\d+)?)")
_TRY_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True)
class AppriseChannel:
    """One Apprise URL. The URL is a secret: it is in no repr, error or log."""

    name: str
    url: str = field(repr=False)
    scheme: str = ""
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """Text first; where a service refuses it only because of the chart, once more without."""
        plugin = self._plugin(outgoing)
        chart = outgoing.chart if getattr(plugin, "attachment_support", False) else None
        note = "" if chart or not outgoing.chart else f"{self.scheme} carries no picture"
        told, log = self._notify(plugin, outgoing, chart)
        if not told and chart and _only_the_chart_failed(log, outgoing.chart_name):
            return Receipt(self.name, "the text arrived, the chart did not")
        if not told and chart and _status(log) in {400, 413, 415, 422}:
            told, log = self._notify(plugin, outgoing, None)
            note = "sent without the chart, the service refused it"
        if not told:
            raise self._refusal(log)
        return Receipt(self.name, note)

    def _plugin(self, outgoing: Outgoing) -> Any:
        from apprise import Apprise, AppriseAsset

        # no service is told to load Apprise's icons, nothing is kept on disk
        asset = AppriseAsset(app_id="watchkeeper", app_desc="watchkeeper", app_url="", storage_mode="memory")
        asset.image_url_mask = asset.image_url_logo = ""
        with held_back():
            plugin: Any = Apprise.instantiate(self.url, asset=asset, suppress_exceptions=True)
        if plugin is None:
            raise UndeliverableError(f"channel {self.name!r} ({self.scheme}) has a URL that Apprise cannot read")
        plugin.socket_connect_timeout = plugin.socket_read_timeout = self.timeout_seconds
        if hasattr(plugin, "payload_extras"):  # json, xml, form: the receiver can tell a repeat
            plugin.headers = {**plugin.headers, "Idempotency-Key": outgoing.message_id}
            plugin.payload_extras = {
                **plugin.payload_extras,
                "message_id": outgoing.message_id,
                "thread_id": outgoing.thread_id,
                "severity": outgoing.message.severity,
                "transition": outgoing.message.transition,
            }
        return plugin

    def _notify(self, plugin: Any, outgoing: Outgoing, chart: bytes | None) -> tuple[bool, list[str]]:
        from apprise import AppriseAttachment, NotifyFormat, NotifyType
        from apprise.attachment.memory import AttachMemory

        memory: Any = AttachMemory
        kind = {"S4": NotifyType.FAILURE, "S3": NotifyType.FAILURE, "S2": NotifyType.WARNING}
        shown = as_markdown if self.scheme in MARKDOWN_READERS else as_text
        title, _, body = shown(outgoing.message).partition("\n")
        room = max(int(getattr(plugin, "body_maxlen", 0) or 32768) - len(title) - 16, 40)
        pieces = split(body or title, room)
        with held_back() as log:
            for index, piece in enumerate(pieces):
                attached = AppriseAttachment() if chart and index == len(pieces) - 1 else None
                if attached is not None and chart:
                    attached.add(memory(content=chart, name=outgoing.chart_name, mimetype="image/png"))
                told = plugin.notify(
                    title=quiet(title) if index == 0 else "",
                    body=piece,
                    notify_type=kind.get(outgoing.message.severity, NotifyType.INFO),
                    body_format=NotifyFormat.TEXT,
                    attach=attached,
                )
                if not told:
                    return False, log
        return True, log

    def _refusal(self, log: list[str]) -> DeliveryFailed | UndeliverableError:
        status = _status(log)
        who = f"channel {self.name!r} ({self.scheme})"
        pause = next((float(found[1]) for line in log if (found := _PAUSE.search(line))), None)
        if status == 429 and pause is not None:
            return TryLater(f"{who} asks for a pause of {pause:.0f} s", pause)
        if status is not None and 400 <= status < 500 and status not in _TRY_AGAIN:
            hint = "check its token and address in the configuration"
            return UndeliverableError(f"{who} refused the message with status {status}; {hint}")
        if status == 429:
            return TryLater(f"{who} limits its rate (status 429)", 60.0)
        return DeliveryFailed(f"{who} did not take the message: " + (f"status {status}" if status else "no answer"))


def open_apprise(name: str, url: str, timeout_seconds: float = 15.0) -> AppriseChannel:
    """Raises BadConfig, without the URL, where Apprise does not know it."""
    from apprise import Apprise

    scheme = url.partition("://")[0].lower() if "://" in url else "unknown"
    with held_back():
        known = Apprise.instantiate(url, suppress_exceptions=True)
    if known is None:
        raise BadConfig(f"channel {name!r}: Apprise cannot read its URL (scheme {scheme[:20]!r}); see docs/channels.md")
    return AppriseChannel(name, url, str(known.schema or scheme).lower(), timeout_seconds)


def _status(log: list[str]) -> int | None:
    found = [int(match[1]) for line in log if (match := _STATUS.search(line))]
    return found[-1] if found else None


def _only_the_chart_failed(log: list[str], chart_name: str) -> bool:
    """Whether the service first said that the text is there and then that the attachment is not."""
    sent = any(line.startswith("Sent ") for line in log)
    return sent and any(line.startswith("Failed") and ("attachment" in line or chart_name in line) for line in log)
