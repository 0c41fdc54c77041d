"""watchkeeper.toml: what it may say, and what is said of it."""

from pathlib import Path

import pytest

from flows.config import find_config, load_config
from flows.errors import BadConfig
from flows.values import is_secret


def write(folder: Path, text: str) -> Path:
    path = folder / "watchkeeper.toml"
    path.write_text(text)
    return path


def problems(folder: Path, text: str) -> list[str]:
    path = write(folder, text)
    with pytest.raises(BadConfig) as caught:
        load_config(path)
    return [line.removeprefix(f"{path}: ") for line in str(caught.value).splitlines()]


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(
        write(
            tmp_path,
            '[store]\nurl = "s.duckdb"\n[watch]\nout = "pages"\n[[run]]\nsource = "log/a.jsonl"\n'
            '[[channel]]\nname = "here"\nurl = "folder:alerts"\n',
        )
    )
    assert config.store.url == str(tmp_path / "s.duckdb")
    assert config.run[0].source == str(tmp_path / "log/a.jsonl")
    assert config.run[0].label == "log/a.jsonl"
    assert config.watch.out == tmp_path / "pages"
    assert config.channel[0].url.get_secret_value() == f"folder:{tmp_path / 'alerts'}"


def test_defaults_are_a_minute_and_a_store_beside_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, '[[run]]\nsource = "a"\n'))
    assert config.watch.interval == 60.0
    assert config.store.url == str(tmp_path / "watchkeeper.duckdb")
    assert config.path == tmp_path / "watchkeeper.toml"


def test_every_problem_is_told_at_once_with_its_key(tmp_path: Path) -> None:
    said = problems(
        tmp_path,
        '[[run]]\nsource = "a"\nstepkey = "x"\n[watch]\ninterval = "often"\n[[channel]]\nurl = "folder:x"\n[chanel]\n',
    )
    assert said == [
        "run[1].stepkey: no such key; did you mean step_key?",
        "watch.interval: 'often' is no duration; write 30s, 5m, 1h or a number of seconds",
        "channel[1].name: is missing; it must be set",
        "chanel: no such key; did you mean channel?",
    ]


@pytest.mark.parametrize(("text", "seconds"), [('"90s"', 90), ('"5m"', 300), ('"1.5 h"', 5400), ("45", 45)])
def test_an_interval_has_a_unit_or_is_seconds(tmp_path: Path, text: str, seconds: float) -> None:
    assert load_config(write(tmp_path, f"[watch]\ninterval = {text}\n")).watch.interval == seconds


def test_interval_and_cron_exclude_each_other(tmp_path: Path) -> None:
    assert problems(tmp_path, '[watch]\ninterval = "60s"\ncron = "* * * * *"\n') == [
        "watch: interval and cron are both set; keep one of them"
    ]


@pytest.mark.parametrize(
    "url",
    [
        "slack://T123/B456/hunter2hunter2",
        "mailtos://me:hunter2hunter2@mail.example.org",
        "json://host/?token=hunter2hunter2",
        "discord://1234/hunter2hunter2",
    ],
)
def test_a_secret_in_plain_text_is_refused_without_being_repeated(tmp_path: Path, url: str) -> None:
    said = problems(tmp_path, f'[[channel]]\nname = "c"\nurl = "{url}"\n')
    assert len(said) == 1
    assert said[0].startswith("channel[1].url: a secret stands in plain text here; export it")
    assert "hunter2" not in said[0]


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "slack://T/B/hunter2")
    (tmp_path / "hook").write_text("discord://1/hunter2\n")
    config = load_config(
        write(
            tmp_path,
            '[[channel]]\nname = "a"\nurl = "env:HOOK"\n'
            f'[[channel]]\nname = "b"\nurl = "file:{tmp_path}/hook"\n[watch]\nheartbeat_url = "env:HOOK"\n',
        )
    )
    assert [c.url.get_secret_value() for c in config.channel] == ["slack://T/B/hunter2", "discord://1/hunter2"]
    assert "hunter2" not in repr(config)


def test_a_secret_that_is_not_there_names_where_it_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK", raising=False)
    said = problems(
        tmp_path, '[[channel]]\nname = "a"\nurl = "env:HOOK"\n[[channel]]\nname = "b"\nurl = "file:/no/such"\n'
    )
    assert said == [
        "channel[1].url: the environment variable HOOK is not set; export it where watchkeeper runs",
        "channel[2].url: the file /no/such cannot be read (No such file or directory)",
    ]


def test_what_a_block_keeps_is_asked_once_and_only_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("flows.values.secret_of", lambda name: asked.append(name) or f"hunter2 of {name}")
    config = load_config(
        write(
            tmp_path,
            '[[channel]]\nname = "a"\nservice = "slack"\nto = "C1"\ntoken = "block:secret/my-slack"\n'
            '[[channel]]\nname = "b"\nservice = "discord"\nurl = "block:secret/hook"\n'
            '[watch]\nheartbeat_url = "block:secret/beat"\n[phone]\nsecret = "block:secret/phone"\n',
        )
    )
    assert asked == [] and "hunter2" not in repr(config)
    assert [config.channel[0].token.get_secret_value() for _ in range(2)] == ["hunter2 of my-slack"] * 2
    assert asked == ["my-slack"] and "hunter2" not in repr(config) + str(config.model_dump())
    with pytest.raises(BadConfig, match=r"^phone\.secret has less than 16 characters"):
        monkeypatch.setattr("flows.values.secret_of", lambda name: "short")
        config.phone.text_of("secret")
    assert config.phone.text_of("opsgenie_secret") == ""


@pytest.mark.parametrize("value", ["block:my-slack", "block:slack-webhook/x", "block:secret/My Slack", "block:secret/"])
def test_a_block_that_is_no_secret_block_is_refused(tmp_path: Path, value: str) -> None:
    said = problems(tmp_path, f'[[channel]]\nname = "a"\nservice = "slack"\nto = "C1"\ntoken = "{value}"\n')
    assert said[0].startswith("channel[1].token: is no Secret block of Prefect; write block:secret/name, the name as")


def test_names_are_unique(tmp_path: Path) -> None:
    assert problems(tmp_path, '[[run]]\nsource = "a"\n[[run]]\nsource = "b"\nname = "a"\n') == [
        "two entries [[run]] are called a; give each its own name"
    ]


def test_no_toml_and_no_file_are_one_line(tmp_path: Path) -> None:
    assert problems(tmp_path, "[[run]\n")[0].startswith("this is no TOML: ")
    with pytest.raises(BadConfig, match="there is no such configuration; `watchkeeper init"):
        find_config(tmp_path / "none.toml")


def test_the_environment_names_file_and_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHKEEPER_CONFIG", str(write(tmp_path, "")))
    monkeypatch.setenv("WATCHKEEPER_STORE", str(tmp_path / "other.duckdb"))
    assert load_config().store.url == str(tmp_path / "other.duckdb")


def test_what_we_set_ourselves_cannot_be_set_in_the_file(tmp_path: Path) -> None:
    assert problems(tmp_path, 'path = "x"\n') == ["no such key: path"]


def test_roles_of_a_run_come_before_those_for_all(tmp_path: Path) -> None:
    config = load_config(
        write(
            tmp_path,
            '[roles."x"]\nrole = "loss"\n[roles."y"]\nrole = "mfu"\n[[run]]\nsource="a"\nroles.x.role = "eval_loss"\n',
        )
    )
    assert config.roles_of(config.run[0]) == {"x": {"role": "eval_loss"}, "y": {"role": "mfu"}}


def test_a_channel_takes_its_runs_from_its_severity_on(tmp_path: Path) -> None:
    channel = load_config(
        write(tmp_path, '[[channel]]\nname = "a"\nurl = "folder:x"\nmin_severity = "S3"\nruns = ["big-*"]\n')
    ).channel[0]
    assert channel.takes("big-1", 3)
    assert not channel.takes("big-1", 2)
    assert not channel.takes("small", 4)


def test_services_are_secret_and_local_files_are_not() -> None:
    assert is_secret("ntfy://topic")
    assert not is_secret("folder:alerts")
    assert is_secret("https://hunter2@hooks.example/x")
    assert not is_secret("mailto://me@example.org")
    assert not is_secret("json://127.0.0.1:8000/hook")
    assert not is_secret("mailto://127.0.0.1:2525?from=a@b.org&to=c@d.org")


def test_a_bound_says_what_it_is_about_and_from_where_on(tmp_path: Path) -> None:
    said = problems(
        tmp_path,
        '[[bound]]\nabove = 1\n[[bound]]\nrole = "mfu"\nmetric = "mfu"\nbelow = 1\n[[bound]]\nrole = "mfu"\n'
        '[[bound]]\nrole = "mfu"\nabove = 1\nbelow = 2\n[[bound]]\nrole = "mfu"\nbelow = "low"\nsamples = 0\nseverty = "S2"\n',
    )
    assert said == [
        "bound[1]: set either metric (a name or shell pattern) or role, and not both",
        "bound[2]: set either metric (a name or shell pattern) or role, and not both",
        "bound[3]: set above or below, or both: beyond which number is it a finding?",
        "bound[4]: above 1 and below 2: every value would be a finding; swap them",
        "bound[5].below: input should be a valid number, unable to parse string as a number",
        "bound[5].samples: input should be greater than or equal to 1",
        "bound[5].severty: no such key; did you mean severity?",
    ]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_limit_is_a_number_that_something_can_be_beyond(tmp_path: Path, value: str) -> None:
    assert problems(tmp_path, f'[[bound]]\nrole = "mfu"\nabove = {value}\n') == [
        "bound[1].above: input should be a finite number"
    ]


def test_a_check_is_called_like_its_file_and_lies_beside_the_configuration(tmp_path: Path) -> None:
    config = load_config(
        write(tmp_path, '[[check]]\nsql = "checks/gap.sql"\n[[check]]\nsql = "/x/gap.sql"\nname = "two"\n')
    )
    assert [(each.label, each.sql) for each in config.check] == [
        ("gap", tmp_path / "checks/gap.sql"),
        ("two", Path("/x/gap.sql")),
    ]
    assert problems(tmp_path, '[[check]]\nsql = "a/gap.sql"\n[[check]]\nsql = "b/gap.sql"\n') == [
        "two entries [[check]] are called gap; give each its own name"
    ]


SEGMENTS = (
    '[[run]]\nname = "hero"\n[[run.segment]]\nsource = "a.jsonl"\nlast = 80\n[[run.segment]]\nsource = "b.jsonl"\n'
)


def test_segments_of_a_run_are_called_by_what_is_written_and_found_beside_the_file(tmp_path: Path) -> None:
    (run,) = load_config(write(tmp_path, SEGMENTS + 'parent = "a.jsonl"\nreason = "rollback"\n')).run
    assert [(each.label, each.source, each.last, each.parent, each.reason) for each in run.segment] == [
        ("a.jsonl", str(tmp_path / "a.jsonl"), 80.0, "", "segment"),
        ("b.jsonl", str(tmp_path / "b.jsonl"), None, "a.jsonl", "rollback"),
    ]
    assert (run.label, run.source) == ("hero", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[run]]\nname = "x"\n', "run[1]: set either source, or a [[run.segment]] for each source run of it"),
        (SEGMENTS.replace('name = "hero"\n', ""), "run[1]: name is missing; a run of several segments must have one"),
        (SEGMENTS + 'parent = "c"\n', "run[1]: segment b.jsonl: no segment before it is called c (a.jsonl)"),
        (SEGMENTS.replace("b.jsonl", "a.jsonl"), "run[1]: two segments are called a.jsonl; give each its own name"),
        (SEGMENTS + "first = 90\nlast = 80\n", "run[1].segment[2]: last 80 lies before first 90; swap them"),
        (SEGMENTS + "lasts = 80\n", "run[1].segment[2].lasts: no such key; did you mean last?"),
    ],
)
def test_what_is_wrong_with_a_segment_is_told(tmp_path: Path, text: str, said: str) -> None:
    assert problems(tmp_path, text) == [said]


def channel_file(tmp_path, text):
    path = tmp_path / "watchkeeper.toml"
    path.write_text(f'[[channel]]\nname = "ops"\n{text}\n')
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "channel[1]: url missing; a channel without a service needs url"),
        ('service = "slack"\nto = "C1"', "token missing; service slack needs token and to"),
        ('service = "slack"\nto = "C1"\ntoken = "xoxb-1234"', "channel[1].token: a secret stands in plain text here"),
        ('service = "discord"\nurl = "https://discord.com/api/webhooks/1/x"', "the url of discord is a secret"),
        ('service = "teams"\nurl = "env:PAGER_SECRET"\nto = "x"', "service teams has no use for to"),
        ('service = "pager"\ntoken = "env:PAGER_SECRET"', "channel[1].service: input should be"),
        ('service = "github"\ntoken = "env:PAGER_SECRET"\nto = "a/b#1"\nack_link = true', "ack_link on an issue"),
        ('service = "opsgenie"\ntoken = "env:NOT_THERE"', "the environment variable NOT_THERE is not set"),
        ('url = "folder:x"\n[phone]\nsecret = "env:PAGER_SHORT"', "secret has less than 16 characters"),
        ('url = "folder:x"\n[phone]\nsecret = "env:PAGER_SECRET"\nlisten = "8787"', "listen '8787' is no address"),
        ('url = "folder:x"\n[phone]\nsecret = "env:PAGER_SECRET"\nurl = "ftp://x"', "must begin with https://"),
    ],
)
def test_what_is_wrong_with_a_channel_is_told_without_its_secret(tmp_path, monkeypatch, text, words):
    monkeypatch.setenv("PAGER_SECRET", "https://a.example/0123456789abcdef")
    monkeypatch.setenv("PAGER_SHORT", "0123")
    with pytest.raises(BadConfig) as told:
        load_config(channel_file(tmp_path, text))
    assert words in str(told.value)
    assert "0123456789abcdef" not in str(told.value) and "xoxb" not in str(told.value)


def test_a_channel_of_every_service_is_opened_from_the_file(tmp_path, monkeypatch):
    from flows.channels.catalogue import open_configured

    monkeypatch.setenv("PAGER_SECRET", "https://a.example/0123456789abcdef")
    kinds = {
        "Slack": 'service = "slack"\nto = "C1"\ntoken = "env:PAGER_SECRET"',
        "Discord": 'service = "discord"\nurl = "env:PAGER_SECRET"\nto = "forum"',
        "Teams": 'service = "teams"\nurl = "env:PAGER_SECRET"',
        "GitHub": 'service = "github"\nto = "ana/hero#7"\ntoken = "env:PAGER_SECRET"',
        "PagerDuty": 'service = "pagerduty"\ntoken = "env:PAGER_SECRET"\nseverities = {S2 = "info"}',
        "Opsgenie": 'service = "opsgenie"\ntoken = "env:PAGER_SECRET"\nurl = "https://api.eu.opsgenie.com"',
        "Alertmanager": 'service = "alertmanager"\nurl = "http://127.0.0.1:9093"',
        "Webhook": 'service = "webhook"\nurl = "https://a.example/hook"\ntoken = "env:PAGER_SECRET"',
        "Folder": 'url = "folder:alerts"',
    }
    for kind, text in kinds.items():
        (section,) = load_config(channel_file(tmp_path, text)).channel
        channel = open_configured(section)
        assert type(channel).__name__ == kind
        assert "0123456789abcdef" not in repr(channel) + repr(section)


def test_a_word_that_the_pager_does_not_have_is_refused(tmp_path, monkeypatch):
    from flows.channels.catalogue import open_configured

    monkeypatch.setenv("PAGER_SECRET", "0123456789abcdef")
    text = 'service = "pagerduty"\ntoken = "env:PAGER_SECRET"\nseverities = {S2 = "loud"}'
    with pytest.raises(BadConfig, match="severities: loud: it is critical, error, info, warning"):
        open_configured(load_config(channel_file(tmp_path, text)).channel[0])


def test_every_commented_example_of_init_can_be_used_as_it_stands(tmp_path, monkeypatch):
    import re

    from flows.channels.catalogue import open_configured
    from flows.verbs.init import _TAIL

    text = re.sub(r"(?m)^# (?=\[|\w+ = )", "", _TAIL).replace('"env:MAIL_URL"', '"env:A_MAIL_URL"')
    for name in set(re.findall(r"env:(\w+)", text)):
        monkeypatch.setenv(name, "https://a.example/0123456789abcdef")
    monkeypatch.setenv("A_MAIL_URL", "mailtos://me:0123456789abcdef@mail.example?to=you@a.example")
    config = load_config(write(tmp_path, text))
    assert len([open_configured(each) for each in config.channel]) == 9
    assert config.phone.address == ("127.0.0.1", 8787) and config.phone.valid == 86_400
