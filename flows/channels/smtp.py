"""Mail with a stable Message-ID, a thread, a text and an HTML part and the chart inline.

Apprise's own mail plugin makes a new Message-ID on every send, so it only reads the address here (mailto://,
mailtos://, smtp://, smtps://, with its knowledge of the big providers); the sending is smtplib's.
"""

import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any

from flows.channels.apprise_log import held_back
from flows.channels.contract import Outgoing, Receipt
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.messages.as_html import as_html
from flows.messages.as_text import as_text
from flows.messages.plain import plain

SCHEMES = ("mailto", "mailtos", "smtp", "smtps")


@dataclass(frozen=True)
class Smtp:
    """A mail server and who is written to. `mode` is insecure, starttls or ssl."""

    name: str
    host: str
    port: int
    mode: str
    sender: tuple[str, str]
    to: tuple[str, ...]
    hidden: tuple[str, ...] = ()  # cc and bcc of the URL: written to, not shown
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    verify: bool = True
    timeout_seconds: float = 15.0

    def send(self, outgoing: Outgoing) -> Receipt:
        """Raises UndeliverableError where the server says 5xx, DeliveryFailed on 4xx, a time-out or a lost line."""
        mail = self.compose(outgoing)
        try:
            server = self._connect()
            try:
                refused = server.send_message(mail, self.sender[1], [*self.to, *self.hidden])
            finally:
                with suppress(smtplib.SMTPException, OSError):  # the answer to QUIT changes nothing
                    server.quit()
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise self._refusal(max(codes) if min(codes) >= 500 else min(codes), b"recipients refused") from None
        except smtplib.SMTPResponseException as error:
            raise self._refusal(error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPNotSupportedError:
            raise UndeliverableError(self._says("the server offers no log-in or no STARTTLS")) from None
        except ssl.SSLCertVerificationError:
            raise UndeliverableError(self._says("its certificate is not valid; mend it or set verify=no")) from None
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryFailed(self._says(f"{type(error).__name__}; is the server up?")) from None
        left_out = f"{len(refused)} of {len(self.to) + len(self.hidden)} recipients were refused" if refused else ""
        return Receipt(self.name, left_out)

    def compose(self, outgoing: Outgoing) -> EmailMessage:
        """The mail itself: text, HTML, chart. Headers hold one line each whatever the names in it are."""
        mail = EmailMessage()
        mail["Subject"] = plain(outgoing.message.title, 200)
        mail["From"] = Address(plain(self.sender[0]), addr_spec=self.sender[1])
        mail["To"] = ", ".join(self.to)
        mail["Message-ID"] = outgoing.message_id
        mail["In-Reply-To"] = outgoing.thread_id
        mail["References"] = outgoing.thread_id
        mail["Auto-Submitted"] = "auto-generated"
        if outgoing.message.severity in ("S3", "S4"):
            mail["Importance"] = "high"
        mail.set_content(as_text(outgoing.message, full=True))
        html = as_html(outgoing.message, images=outgoing.chart is not None)
        mail.add_alternative(html, subtype="html")
        if outgoing.chart is not None:
            page = mail.get_body(("html",))
            assert page is not None  # it was added above
            page.add_related(
                outgoing.chart, "image", "png", cid=f"<{outgoing.chart_name}>", filename=outgoing.chart_name
            )
        return mail

    def _connect(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.mode == "ssl":
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout_seconds, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=self.timeout_seconds)
        try:
            if self.mode == "starttls":
                server.starttls(context=context)
            if self.user and self.password:
                server.login(self.user, self.password)
        except BaseException:
            server.close()
            raise
        return server

    def _refusal(self, code: int, reply: bytes | str) -> DeliveryFailed | UndeliverableError:
        said = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
        text = self._says(f"the server answered {code} {plain(said, 120)}")
        return UndeliverableError(f"{text}; check the address and the log-in") if code >= 500 else DeliveryFailed(text)

    def _says(self, reason: str) -> str:
        text = f"channel {self.name!r} (mail) did not take the message: {reason}"
        return text.replace(self.password, "***") if self.password else text


def open_smtp(name: str, url: str, timeout_seconds: float = 15.0) -> Smtp:
    """The channel of a mail URL in Apprise's form. Raises BadConfig, without the URL, where it cannot be read."""
    from apprise import Apprise

    scheme, _, rest = url.partition("://")
    wanted = {"smtp": "mailto", "smtps": "mailtos"}.get(scheme.lower(), scheme)
    with held_back():
        plugin: Any = Apprise.instantiate(f"{wanted}://{rest}", suppress_exceptions=True)
    if plugin is None or not getattr(plugin, "smtp_host", ""):
        raise BadConfig(f"channel {name!r}: its mail URL cannot be read; write mailtos://user:password@host?to=a@b.org")
    to = tuple(dict.fromkeys(address for _, address in plugin.targets)) or (plugin.from_addr[1],)
    mode = str(getattr(plugin.secure_mode, "value", plugin.secure_mode))
    return Smtp(
        name,
        host=plugin.smtp_host,
        port=int(plugin.port or {"starttls": 587, "ssl": 465}.get(mode, 25)),
        mode=mode,
        sender=(str(plugin.from_addr[0] or "watchkeeper"), plugin.from_addr[1]),
        to=to,
        hidden=tuple(address for address in sorted({*plugin.cc, *plugin.bcc}) if address not in to),
        user=plugin.user or "",
        password=plugin.password or "",
        verify=bool(plugin.verify_certificate),
        timeout_seconds=timeout_seconds,
    )
