"""Routes, quiet hours, limits, digests and reminders, and what is said between the writing of a message and its leaving."""

from typing import Any

import pytest

from flows.store import open_store

HERE = '[[channel]]\nname = "here"\nurl = "folder:alerts"\n'
PLAIN = '[roles."loss"]\nrole = "other"\n'  # only the bounds of a test speak
DOWN = '[[channel]]\nname = "here"\nurl = "folder:blocked/alerts"\n'


def states(night: Any) -> list[tuple[str, str, str | None]]:
    rows = open_store(night.store, clock=lambda: night.now).outbox("a", ("pending", "delivered", "withdrawn", "dead"))
    return [(row["transition"], row["state"], row["held_by"]) for row in rows]


def break_the_channel(night: Any) -> None:
    (night.folder / "blocked").write_text("a file where a folder should be")
    night.configure(DOWN)


def mend_the_channel(night: Any) -> None:
    (night.folder / "blocked").unlink()
    night.now += 7200.0


def test_an_acknowledgement_is_on_a_message_that_had_to_wait(night: Any) -> None:
    break_the_channel(night)
    night.fails()
    assert night.watch("blocked/alerts", good=False) == []
    night.now += 60.0
    night.say("ack", night.id)
    mend_the_channel(night)
    assert [title[:35] for title in night.watch("blocked/alerts")] == ["[ana has it] S4 a: loss became NaN "]


@pytest.mark.faults
def test_a_mute_holds_a_message_that_had_to_wait_until_it_ends(night: Any) -> None:
    break_the_channel(night)
    night.fails()
    night.watch("blocked/alerts", good=False)
    night.say("mute", "--metric", "loss", "--for", "4h")
    mend_the_channel(night)
    assert night.watch("blocked/alerts") == []
    assert states(night) == [("opened", "pending", "muted by ana")]
    night.now += 4 * 3600.0
    assert [title[:30] for title in night.watch("blocked/alerts")] == ["[held back: muted by ana] S4 a"]


@pytest.mark.faults
def test_a_snooze_holds_it_and_one_message_is_left_when_it_ends(night: Any) -> None:
    break_the_channel(night)
    night.fails()
    night.watch("blocked/alerts", good=False)
    night.say("snooze", night.id, "--for", "4h")
    mend_the_channel(night)
    assert night.watch("blocked/alerts") == []
    night.now += 4 * 3600.0
    assert [title[:17] for title in night.watch("blocked/alerts")] == ["S4 a: Still open:"]
    assert states(night)[0] == ("opened", "withdrawn", "a later message says more")


def test_quiet_hours_hold_what_is_no_page_and_let_it_go_in_the_morning(night: Any) -> None:
    quiet = 'quiet = {begin = "17:00", end = "07:00", passes = "S4"}\n'
    bound = PLAIN + '[[bound]]\nmetric = "loss"\nabove = 9\nseverity = "S3"\n'
    night.configure(HERE + quiet + bound)  # it is 17:46 UTC
    night.write(night.folder / "a.jsonl", 300, 310, lambda step: 9.5)
    assert night.watch() == []
    assert states(night)[-1] == ("opened", "pending", "quiet hours until 07:00 UTC")
    night.now += 13 * 3600.0 + 840.0
    assert any("[held back: quiet hours until 07:00 UTC]" in title for title in night.watch())


@pytest.mark.faults
def test_a_page_passes_quiet_hours_and_limits(night: Any) -> None:
    night.configure(HERE + 'quiet = {begin = "17:00", end = "07:00"}\nlimit = {most = 1, each = "1h"}\n')
    night.fails()
    assert [title[:21] for title in night.watch()] == ["S4 a: loss became NaN"]


@pytest.mark.faults
def test_beyond_the_limit_things_wait_and_the_last_message_counts_them(night: Any) -> None:
    bounds = PLAIN + "".join(f'[[bound]]\nmetric = "loss"\nabove = {limit}\nseverity = "S2"\n' for limit in (8, 9))
    night.configure(HERE + 'limit = {most = 1, each = "1h"}\n' + bounds)
    night.write(night.folder / "a.jsonl", 300, 310, lambda step: 9.5)
    told = night.watch()
    assert len(told) == 1 and "more held back by the limit] S2 a:" in told[0]
    night.now += 1800.0
    assert night.watch() == []
    night.now += 1801.0
    assert "held back: limit of 1 in 60 min" in night.watch()[0]


@pytest.mark.faults
def test_a_page_that_nobody_acknowledges_is_told_again_until_somebody_does(night: Any) -> None:
    night.configure(f'[watch]\nremind = "30m"\n{HERE}')
    night.fails()
    assert len(night.watch()) == 1
    night.now += 1799.0
    assert night.watch() == []
    night.now += 1.0
    assert [title[:17] for title in night.watch()] == ["S4 a: Still open:"]
    assert night.watch() == []
    night.now += 1800.0
    assert len(night.watch()) == 1
    night.say("ack", night.id)
    night.now += 7200.0
    assert night.watch() == []


def test_a_digest_collects_what_is_too_small_to_be_told_at_once(night: Any) -> None:
    bound = PLAIN + '[[bound]]\nmetric = "loss"\nabove = 9\nseverity = "S1"\n'
    night.configure(HERE.replace("alerts", "digests") + 'min_severity = "S3"\ndigest = {each = "1d"}\n' + bound)
    night.write(night.folder / "a.jsonl", 300, 310, lambda step: 9.5)
    assert night.watch("digests") == []
    night.now += 86_400.0
    (title,) = night.watch("digests")
    assert title.startswith("S1 a: digest: 1 note, 1 of them open")
    night.now += 86_400.0
    assert night.watch("digests") == []


@pytest.mark.faults
def test_a_digest_by_steps_waits_for_the_run(night: Any) -> None:
    bound = PLAIN + '[[bound]]\nmetric = "loss"\nabove = 9\nseverity = "S1"\n'
    night.configure(HERE + 'min_severity = "S3"\ndigest = {steps = 40}\n' + bound)
    night.write(night.folder / "a.jsonl", 300, 310, lambda step: 9.5)
    night.watch()
    night.now += 1e6
    assert night.watch() == []
    night.write(night.folder / "a.jsonl", 310, 341)
    assert [title[:21] for title in night.watch()] == ["S1 a: digest: 1 note,"]


def test_a_route_leads_by_role_tag_and_severity(night: Any) -> None:
    channels = "".join(f'[[channel]]\nname = "{n}"\nurl = "folder:{n}"\n' for n in ("losses", "mfu", "dev", "all"))
    routes = (
        '[[route]]\nto = ["losses"]\nroles = ["loss"]\ntags = ["prod"]\nmin_severity = "S3"\n'
        '[[route]]\nto = ["mfu"]\nroles = ["mfu"]\n'
        '[[route]]\nto = ["dev"]\ntags = ["dev"]\n'
    )
    night.configure(channels + routes)
    night.fails()
    assert [title[:21] for title in night.watch("losses")] == ["S4 a: loss became NaN"]
    assert sorted(path.name for path in night.folder.iterdir() if path.is_dir()) == ["all", "losses"]
