"""Which of its own failures the watch tells, and when."""

from dataclasses import dataclass, field
from pathlib import Path

from flows.channels.contract import Outgoing, Receipt
from flows.errors import DeliveryFailed
from flows.stages.selfcheck import REMIND_SECONDS, Memory, Trouble, load, observe, tell, told

GONE = Trouble("run a|BadInput", "a.jsonl: no such file", permanent=True)
BUSY = Trouble("store|StoreBusy", "store x: python (PID 7) has it open", permanent=False)


def passes(
    memory: Memory, *each: tuple[list[Trouble], list[str]], start: float = 0.0
) -> tuple[Memory, list[list[str]]]:
    """Observe passes a minute apart, every notice reaching somebody; what was told in each."""
    said = []
    for index, (troubles, looked) in enumerate(each):
        now = start + 60.0 * index
        memory, notices = observe(memory, troubles, looked, now)
        said.append([f"{notice.what} {notice.key}" for notice in notices])
        for notice in notices:
            memory = told(memory, notice, now)
    return memory, said


def test_what_is_permanent_is_told_at_once_and_once() -> None:
    _, said = passes(Memory(), *[([GONE], ["run a"])] * 4)
    assert said == [["stale run a|BadInput"], [], [], []]


def test_what_may_pass_is_told_after_three_passes_in_a_row() -> None:
    _, said = passes(Memory(), *[([BUSY], ["store"])] * 5)
    assert said == [[], [], ["stale store|StoreBusy"], [], []]


def test_what_passed_by_itself_is_never_told() -> None:
    once = ([BUSY], ["store"])
    well: tuple[list[Trouble], list[str]] = ([], ["store"])
    memory, said = passes(Memory(), once, once, well, once, once, well)
    assert said == [[]] * 6
    assert memory == Memory()


def test_an_end_is_told_once_and_only_of_what_was_told() -> None:
    well: tuple[list[Trouble], list[str]] = ([], ["run a"])
    memory, said = passes(Memory(), ([GONE], ["run a"]), well, well)
    assert said == [["stale run a|BadInput"], ["recovered run a|BadInput"], []]
    assert memory == Memory()


def test_what_was_not_looked_at_has_not_recovered() -> None:
    _, said = passes(Memory(), ([GONE], ["run a"]), ([BUSY], ["store"]), ([], ["store"]), ([GONE], ["run a"]))
    assert said == [["stale run a|BadInput"], [], [], []]


def test_it_is_told_again_after_a_day() -> None:
    memory, _ = passes(Memory(), ([GONE], ["run a"]))
    _, said = passes(memory, ([GONE], ["run a"]), start=REMIND_SECONDS)
    assert said == [["still run a|BadInput"]]


def test_another_text_of_the_same_trouble_is_not_told_again() -> None:
    other = Trouble(GONE.key, "a.jsonl: no such file (seen from elsewhere)", permanent=True)
    memory, said = passes(Memory(), ([GONE], ["run a"]), ([other], ["run a"]))
    assert said == [["stale run a|BadInput"], []]
    assert memory.ongoing[GONE.key].text == other.text


def test_trouble_that_comes_back_before_its_end_was_told_goes_on() -> None:
    memory, _ = passes(Memory(), ([GONE], ["run a"]))
    memory, notices = observe(memory, [], ["run a"], 60.0)
    assert [n.what for n in notices] == ["recovered"]  # it reaches nobody
    memory, notices = observe(memory, [GONE], ["run a"], 120.0)
    assert notices == []
    assert memory.ongoing[GONE.key].since == 0.0


@dataclass
class Listening:
    """A channel that can be deaf."""

    name: str
    deaf: bool = False
    titles: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def send(self, outgoing: Outgoing) -> Receipt:
        if self.deaf:
            raise DeliveryFailed("deaf")
        self.titles.append(outgoing.message.title)
        self.ids.append(outgoing.message_id)
        return Receipt(self.name)


def test_a_notice_that_reaches_nobody_stays_due(tmp_path: Path) -> None:
    channel = Listening("c", deaf=True)
    path = tmp_path / "memory.json"
    out, failed = tell(path, [GONE], ["run a"], {"c": channel}, 0.0)
    assert (out, str(failed["c"])) == (0, "deaf")
    channel.deaf = False
    assert tell(path, [GONE], ["run a"], {"c": channel}, 60.0) == (1, {})
    assert tell(path, [GONE], ["run a"], {"c": channel}, 120.0) == (0, {})
    assert channel.titles == ["watchkeeper: monitor stale: run a"]


def test_a_channel_that_takes_no_notice_is_named_and_the_others_hear(tmp_path: Path) -> None:
    deaf, well = Listening("deaf", deaf=True), Listening("well")
    out, failed = tell(tmp_path / "m.json", [GONE], ["run a"], {"deaf": deaf, "well": well}, 0.0)
    assert (out, list(failed), well.titles) == (1, ["deaf"], ["watchkeeper: monitor stale: run a"])


def test_a_broken_channel_is_told_of_through_the_others(tmp_path: Path) -> None:
    one, two = Listening("one"), Listening("two")
    trouble = Trouble("channel one|UndeliverableError", "one refused", permanent=True)
    tell(tmp_path / "m.json", [trouble], ["channel one"], {"one": one, "two": two}, 0.0)
    assert (one.titles, two.titles) == ([], ["watchkeeper: monitor stale: channel one"])


def test_two_stretches_of_the_same_trouble_have_two_message_ids(tmp_path: Path) -> None:
    channel = Listening("c")
    for now in (0.0, 120.0):
        tell(tmp_path / "m.json", [GONE], ["run a"], {"c": channel}, now)
        tell(tmp_path / "m.json", [], ["run a"], {"c": channel}, now + 60.0)
    assert len(set(channel.ids)) == 4


def test_a_memory_that_cannot_be_read_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    for text in ("", "[]", '{"ongoing": 3}', '{"ongoing": {"k": {"no": 1}}, "over": {}}'):
        path.write_text(text)
        assert load(path) == Memory()
