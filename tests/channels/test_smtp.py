import email
import email.policy
import logging
import socket
import threading

import pytest

from flows.channels.catalogue import open_channel
from flows.channels.contract import Outgoing, message_id, thread_id
from flows.errors import BadConfig, DeliveryFailed, UndeliverableError
from flows.messages.compose import compose

SECRET = "hunter2-very-secret"


def outgoing(incident, context, png=None, transition="opened"):
    message = compose("hero", incident, transition, context)
    return Outgoing(message, message_id(f"d-{transition}"), thread_id(message.thread), png)


def mail_channel(port, options=""):
    return open_channel("mail", f"mailto://127.0.0.1:{port}?from=watch@example.org&to=ana@example.com{options}", 5.0)


def read(raw):
    return email.message_from_bytes(raw, policy=email.policy.default)


def test_a_mail_arrives_with_text_html_and_the_chart_inline(mailbox, incident, context, png):
    receipt = mail_channel(mailbox.port).send(outgoing(incident, context, png))
    mail = read(mailbox.mails[0])
    assert receipt.channel == "mail" and receipt.note == ""
    assert mail["Subject"].startswith("S3 hero: train/loss diverged from 1.83 to 4.61")
    kinds = [part.get_content_type() for part in mail.walk()]
    assert kinds == ["multipart/alternative", "text/plain", "multipart/related", "text/html", "image/png"]
    image = next(part for part in mail.walk() if part.get_content_type() == "image/png")
    assert image.get_content() == png and image.get_content()[:8] == b"\x89PNG\r\n\x1a\n"
    assert image["Content-ID"] == "<chart.png>"
    assert "cid:chart.png" in mail.get_body(("html",)).get_content()
    assert "Needed: page" in mail.get_body(("plain",)).get_content()


def test_a_repeat_has_the_same_message_id_and_a_resolution_the_same_thread(mailbox, incident, context):
    channel = mail_channel(mailbox.port)
    for transition in ("opened", "opened", "resolved"):
        channel.send(outgoing({**incident, "resolved_step": 5900.0}, context, transition=transition))
    first, repeat, resolved = (read(raw) for raw in mailbox.mails)
    assert first["Message-ID"] == repeat["Message-ID"] == "<d-opened@watchkeeper.invalid>"
    assert resolved["Message-ID"] != first["Message-ID"]
    assert first["References"] == resolved["References"] == f"<incident-{incident['id']}@watchkeeper.invalid>"


def test_copies_go_to_all_and_blind_ones_are_not_shown(mailbox, incident, context):
    mail_channel(mailbox.port, ",bo@example.com&bcc=cy@example.com").send(outgoing(incident, context))
    assert sorted(mailbox.recipients[0]) == ["ana@example.com", "bo@example.com", "cy@example.com"]
    assert "cy@example.com" not in mailbox.mails[0].decode()


def test_a_name_with_line_breaks_makes_no_header(mailbox, incident, context):
    incident["title"] = "loss\r\nBcc: evil@example.com\n\nrose"
    mail_channel(mailbox.port).send(outgoing(incident, context))
    assert read(mailbox.mails[0])["Bcc"] is None
    assert mailbox.recipients == [["ana@example.com"]]


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        ("451 try later", DeliveryFailed),
        ("421 busy", DeliveryFailed),
        ("550 no such user", UndeliverableError),
        ("554 spam", UndeliverableError),
    ],
)
def test_the_server_s_verdict_decides_whether_to_try_again(mailbox, incident, context, verdict, error):
    mailbox.verdicts = [verdict]
    with pytest.raises(error, match=verdict[:3]):
        mail_channel(mailbox.port).send(outgoing(incident, context))


def test_a_closed_port_is_tried_again(incident, context):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(DeliveryFailed, match="is the server up"):
        mail_channel(port).send(outgoing(incident, context))


def test_a_server_that_says_nothing_is_left_after_the_timeout(incident, context):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"mailto://127.0.0.1:{mute.getsockname()[1]}?from=w@example.org&to=a@example.com"
        with pytest.raises(DeliveryFailed, match="is the server up"):
            open_channel("mail", url, timeout_seconds=0.3).send(outgoing(incident, context))


def test_a_server_that_hangs_up_before_it_took_the_mail_has_not_got_it(incident, context):
    with socket.create_server(("127.0.0.1", 0)) as rude:

        def greet_and_go():
            line, _ = rude.accept()
            line.sendall(b"220 hello\r\n")
            line.close()

        threading.Thread(target=greet_and_go, daemon=True).start()
        with pytest.raises(DeliveryFailed):
            mail_channel(rude.getsockname()[1]).send(outgoing(incident, context))


def test_neither_error_nor_repr_nor_log_holds_the_password(incident, context, mailbox, caplog):
    caplog.set_level(logging.DEBUG)
    url = f"mailto://ana:{SECRET}@127.0.0.1:{mailbox.port}?from=w@example.org&to=a@example.com"
    channel = open_channel("mail", url)
    assert SECRET not in repr(channel) and SECRET not in str(channel)
    with pytest.raises(UndeliverableError) as caught:  # this server offers no log-in
        channel.send(outgoing(incident, context))
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
    with pytest.raises(BadConfig) as caught_config:
        open_channel("mail", f"mailto://:{SECRET}")
    assert SECRET not in str(caught_config.value) + caplog.text


def test_smtp_urls_are_mail_urls(mailbox, incident, context):
    open_channel("m", f"smtp://127.0.0.1:{mailbox.port}?from=w@example.org&to=a@example.com").send(
        outgoing(incident, context)
    )
    assert len(mailbox.mails) == 1
    assert open_channel("m", "smtps://me:x@smtp.example.org?from=me@example.org").mode == "starttls"
