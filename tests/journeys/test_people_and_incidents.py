"""What people say of an incident from the command line, and what the watch makes of it."""

import json
import re
from typing import Any

import pytest

from flows.errors import BadConfig
from flows.store import open_store


def test_what_is_acknowledged_names_who_has_it_and_its_end_is_told(night: Any) -> None:
    night.fails()
    assert [title[:21] for title in night.watch()] == ["S4 a: loss became NaN"]
    assert night.say("ack", night.id[:5], "--why", "looking") == (
        f"{night.id}: 2030-03-17T17:46:40Z ana: ack, at step 309, S4: looking\n"
    )
    assert "ack ana" in night.say()
    night.write(night.folder / "a.jsonl", 310, 1200)
    assert [title[:15] for title in night.watch()] == ["S4 a: Resolved:"]
    newest = max((night.folder / "alerts").glob("*.txt"), key=lambda path: path.stat().st_mtime_ns)
    assert "in charge: ana" in newest.read_text()


def test_a_snooze_is_silent_then_reminds_once(night: Any) -> None:
    night.fails()
    night.watch()
    night.say("snooze", night.id, "--for", "4h")
    assert "snoozed" in night.say("list")
    night.now += 4 * 3600 - 1
    assert night.watch() == []
    night.now += 1
    assert [title[:17] for title in night.watch()] == ["S4 a: Still open:"]
    assert night.watch() == []


def test_a_mute_sends_nothing_and_lists_all_the_same(night: Any) -> None:
    night.watch()
    night.say("mute", "--metric", "lo*", "--run", "a", "--for", "1h", "--why", "new tokenizer")
    assert night.say("mutes") == (
        "--metric 'lo*' --run 'a': 2030-03-17T17:46:40Z ana: mute, until 2030-03-17T18:46:40Z: new tokenizer\n"
    )
    night.fails()
    assert night.watch() == []
    assert re.search(r"S4 .*loss became NaN.* muted", night.say())
    night.say("unmute", "--metric", "lo*", "--run", "a")
    assert night.say("mutes") == "no mutes\n"
    assert [title[:21] for title in night.watch()] == ["S4 a: loss became NaN"]
    assert night.watch() == []


def test_resolved_by_hand_is_told_and_opens_again_with_something_new(night: Any) -> None:
    night.fails()
    night.watch()
    name = night.id
    night.say("resolve", name, "--why", "rolled back")
    assert night.say() == "no open incidents\n"
    assert [title[:15] for title in night.watch()] == ["S4 a: Resolved:"]
    (text,) = [path.read_text() for path in night.folder.glob("alerts/*.txt") if "Resolved" in path.read_text()]
    assert "Closed: by ana at step 309: rolled back" in text
    assert night.watch() == []
    night.write(night.folder / "a.jsonl", 310, 376)  # it recovers by itself, which is no news any more
    night.fails(376)
    assert [title[:17] for title in night.watch()] == ["S4 a: Open again:"]
    assert night.id == name


def test_the_record_has_all_that_was_said_and_done(night: Any) -> None:
    night.fails()
    night.watch()
    night.say("note", night.id, "node 17 <b>was</b> swapped")
    night.say("feedback", night.id, "known")
    document = json.loads(night.say("list", "--json"))
    assert [(each["who"], each["what"], each["why"]) for each in document["operations"]] == [
        ("watchkeeper", "opened", ""), ("ana", "note", "node 17 <b>was</b> swapped"), ("ana", "known", ""),
    ]  # fmt: skip
    assert "ana: note, at step 309, S4: node 17 <b>was</b> swapped" in night.say("show", night.id)


WRONG = [
    (["ack", "zzz"], "'zzz': no incident has an id that begins so. `watchkeeper incidents list --status all`"),
    (["snooze", "ID"], "snooze: for how long? Give --for 4h or --until-step N."),
    (["snooze", "ID", "--for", "soon"], "--for 'soon': it is a duration up to a year, such as 30m, 4h or 2d."),
    (["snooze", "ID", "--until-step", "9"], "--until-step 9: run a is at step 309 already."),
    (["feedback", "ID", "good"], "feedback 'good': it is right, wrong, known."),
    (["note", "ID", " "], "note: there is nothing in it"),
    (["mute", "--for", "1h"], "mute: give either --metric 'GLOB' or --pattern NAME."),
    (["mute", "--pattern", "loss_spikes", "--for", "1h"], "the playbook has no such cause; it has "),
    (["unmute", "--metric", "x"], "unmute: no such mute of run '*' is in force."),
]


def test_what_is_wrong_is_said_with_its_remedy(night: Any) -> None:
    night.fails()
    night.watch()
    for arguments, words in WRONG:
        with pytest.raises(BadConfig, match=re.escape(words)):
            night.say(*(night.id if each == "ID" else each for each in arguments))
    assert all(each.who == "watchkeeper" for each in open_store(night.store, clock=lambda: 0.0).log())


def test_a_word_put_in_while_the_judge_saves_is_not_lost(night: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass has read the log before somebody resolves the incident, and saves it as open afterwards."""
    from flows.store import Store

    night.fails()
    night.watch()
    save, said = Store.save_judgement, []

    def meanwhile(self: Store, *arguments: Any, **more: Any) -> None:
        if not said:
            said.append(night.say("resolve", night.id))
        save(self, *arguments, **more)

    monkeypatch.setattr(Store, "save_judgement", meanwhile)
    night.write(night.folder / "a.jsonl", 310, 320)
    assert [title[:15] for title in night.watch()] == ["S4 a: Resolved:"]
    assert said and night.say() == "no open incidents\n"
    assert night.watch() == []


def test_what_is_pending_is_listed_and_told_to_nobody_until_it_has_lasted(night: Any) -> None:
    bound = '[[bound]]\nmetric = "loss"\nabove = 3\nsamples = 30\nseverity = "S3"\n'
    night.configure(f'{bound}[[channel]]\nname = "here"\nurl = "folder:alerts"\nmin_severity = "S3"\n')
    night.write(night.folder / "a.jsonl", 300, 312, lambda step: 3.1)
    assert night.watch() == []
    assert night.say("list", "--status", "pending") == "pending  a: loss above 3 for 12 of 30 samples, since step 300\n"
    assert night.say().endswith("1 pending, of which nobody is told: `watchkeeper incidents list --status pending`\n")
    assert night.say("list", "--status", "all").endswith(
        "pending  a: loss above 3 for 12 of 30 samples, since step 300\n"
    )
    assert "pending" not in night.say("list", "--status", "resolved")
    night.write(night.folder / "a.jsonl", 312, 330, lambda step: 3.1)
    assert len([title for title in night.watch() if "above 3" in title]) == 1
    assert night.say("list", "--status", "pending") == "nothing is pending\n"
