"""A secret of the configuration is in no output, error, log, message, page or file of any verb, whatever it looks like."""

import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from flows.cli import app

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
SECRETS = st.text(LETTERS, min_size=20, max_size=40)
# services that are refused at once: nothing answers on port 9
URLS = (
    "json://127.0.0.1:9/{0}?+X-Key={0}",
    "mailto://ana:{0}@127.0.0.1:9?from=a@example.org&to=b@example.org",
    "nosuch://{0}/{0}",
    "{0}",
)
VERBS = (
    ("doctor",), ("doctor", "--json"), ("doctor", "--send-test", "all"), ("incidents",), ("incidents", "--json"),
    ("incidents", "show", "ID"), ("incidents", "ack", "ID"), ("incidents", "snooze", "ID", "--for", "1h"),
    ("incidents", "feedback", "ID", "known"), ("incidents", "resolve", "ID"), ("incidents", "mutes"),
    ("events", "add", "deploy", "--step", "5", "--run", "a"), ("events", "list"), ("check", "a.jsonl"),
    ("sql", "SELECT * FROM deliveries"), ("sql", "SELECT * FROM operations"), ("report", "--out", "pages"),
)  # fmt: skip


def everything_said(night: Any, secret: str, url: str, how: str) -> list[str]:
    """The outputs of a watch with a channel whose URL is a secret, and of every verb after it."""
    if how == "block":
        night.configure(
            '[phone]\nurl = "http://127.0.0.1:9"\nsecret = "block:secret/planted"\n'
            '[[channel]]\nname = "ops"\nack_link = true\nurl = "block:secret/planted"\n'
            '[[channel]]\nname = "here"\nurl = "folder:x"\n'
        )
    elif how == "file":
        (night.folder.parent / "kept.txt").write_text(url.format(secret))
        night.configure(f'[[channel]]\nname = "ops"\nurl = "file:{night.folder.parent / "kept.txt"}"\n')
    else:
        night.configure(
            '[[channel]]\nname = "ops"\nurl = "env:PLANTED"\n[[channel]]\nname = "here"\nurl = "folder:x"\n'
        )
    night.fails()
    said = [repr(night.config), str(night.watch_whatever_comes())]
    for verb in VERBS:
        arguments = [night.id if each == "ID" else each for each in verb]
        done = CliRunner().invoke(app, arguments, env={"WATCHKEEPER_STORE": str(night.store)})
        said += [done.output, repr(done.exception)]
    return said


def left_behind(night: Any, secret: str) -> list[str]:
    files = [path for path in night.folder.rglob("*") if path.is_file()]
    return [path.name for path in files if secret.encode() in path.read_bytes()]


QUICK = (URLS[0], "block")
CASES = [
    pytest.param(url, how, marks=() if (url, how) == QUICK else pytest.mark.faults)
    for url in URLS
    for how in ("env", "file", "block")
]


@pytest.mark.parametrize(("url", "how"), CASES)
def test_no_verb_tells_it(
    night: Any, url: str, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "T0kenThatNobodyMaySee-4711_x"
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(night.folder)
    monkeypatch.setenv("PLANTED", url.format(secret))
    # what a server gives is tested in test_secrets_in_blocks
    monkeypatch.setattr("flows.values.secret_of", lambda name: url.format(secret))
    said = "".join(everything_said(night, secret, url, how))
    assert "S4" in said and "ops" in said
    assert secret not in said + caplog.text
    assert left_behind(night, secret) == []


@given(secret=SECRETS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_secret_in_plain_is_refused_without_repeating_it(night: Any, secret: str) -> None:
    from flows.errors import BadConfig

    for text in (
        f'[[channel]]\nname = "ops"\nurl = "slack://{secret}/{secret}"\n',
        f'[[channel]]\nname = "ops"\nurl = "https://x:{secret}@example.org"\n',
        f'[[channel]]\nname = "ops"\nurl = "jsons://example.org/?token={secret}"\n',
        f'[watch]\nheartbeat_url = "https://example.org/?key={secret}"\n',
    ):
        with pytest.raises(BadConfig) as caught:
            night.configure(text)
        assert secret not in str(caught.value) + repr(caught.value.__cause__)
