"""Patterns of the user's own: what they find, what is refused, and that none can hold the watch up."""

import math
import time
from pathlib import Path

import pytest

from flows.config import load_config
from flows.errors import BadConfig, BadInput
from flows.sources import grammar
from flows.sources.catalogue import open_sources
from flows.sources.contract import Source
from flows.sources.grammar import UserPattern

OURS = UserPattern(
    "ours",
    r"^<(?P<time>[^>]*)> it (?P<step>\d+) of \d+: L=(?P<loss>\S+) dt=(?P<dt>[\d.]+)ms",
    {"loss": "train/loss", "dt": "step_time"},
    {"dt": 0.001},
)
LINES = "start\n" + "".join(
    f"<2025-03-01 10:00:0{at}> it {at} of 9: L={loss} dt=250ms\n"
    for at, loss in [(1, "2.5"), (2, "nan"), (3, "1,234.5"), (4, "-")]
)


def source_of(tmp_path: Path, text: str, *patterns: UserPattern, step_key: str | None = None) -> Source:
    (tmp_path / "run.log").write_text(text)
    (source,) = open_sources(str(tmp_path / "run.log"), patterns=patterns, step_key=step_key)
    return source


def test_named_groups_are_metrics_and_may_be_renamed_and_scaled(tmp_path: Path) -> None:
    source = source_of(tmp_path, LINES, OURS)
    assert (source.describe().format, source.describe().step_key) == ("text/ours", "step")
    (batch,) = source.pull(None)
    rows = [(step, name, value) for step, name, value in batch.rows.select("step", "name", "value").iter_rows()]
    assert repr(rows) == repr(
        [
            (1.0, "train/loss", 2.5), (1.0, "step_time", 0.25), (2.0, "train/loss", math.nan), (2.0, "step_time", 0.25),
            (3.0, "train/loss", 1234.5), (3.0, "step_time", 0.25), (4.0, "step_time", 0.25),
        ]
    )  # fmt: skip
    assert batch.notes == {"text value": 1}
    assert batch.rows["logged_at"][0].isoformat() == "2025-03-01T10:00:01"


def test_lines_that_no_pattern_of_the_user_fits_are_read_by_ours(tmp_path: Path) -> None:
    text = LINES + "s:5 trl:2.5 lr:0.1 norm:1.0\n"
    (batch,) = source_of(tmp_path, text, OURS).pull(None)
    assert batch.rows["name"].unique().sort().to_list() == ["lr", "norm", "step_time", "train/loss", "trl"]
    assert batch.rows["step"].is_sorted()


def test_without_a_step_its_lines_are_counted(tmp_path: Path) -> None:
    source = source_of(tmp_path, "loss is 2.5!\nloss is 2.4!\n", UserPattern("words", r"loss is (?P<loss>[\d.]+)"))
    assert source.describe().step_key == "row number"
    (batch,) = source.pull(None)
    assert batch.rows.select("step", "value").rows() == [(1, 2.5), (2, 2.4)]


def test_another_group_can_be_the_step(tmp_path: Path) -> None:
    (batch,) = source_of(tmp_path, LINES, OURS, step_key="train/loss").pull(None)
    assert batch.rows.filter(name="step_time")["step"].to_list() == [2.5, 1234.5, 1234.5]
    assert batch.notes["step that is no finite number"] == 1


def test_one_writer_of_several_is_taken(tmp_path: Path) -> None:
    text = "".join(f"[rank{rank}] L {at} {rank}.0\n" for at in (1, 2) for rank in (0, 1))
    (batch,) = source_of(tmp_path, text, UserPattern("l", r"L (?P<step>\d+) (?P<loss>\S+)")).pull(None)
    assert batch.rows["value"].to_list() == [0.0, 0.0]
    assert batch.notes == {"line of another rank than rank0, which is the one taken": 2}


def test_a_changed_pattern_reads_the_file_anew(tmp_path: Path) -> None:
    (first,) = source_of(tmp_path, LINES, OURS).pull(None)
    assert list(source_of(tmp_path, LINES, OURS).pull(first.cursor)) == []
    other = UserPattern("ours", OURS.regex, {"loss": "loss"})
    (second,) = source_of(tmp_path, LINES, other).pull(first.cursor)
    assert second.restart
    assert "dt" in second.rows["name"].to_list()


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (UserPattern("p", "(?P<loss>"), "pattern 'p': no regular expression"),
        (UserPattern("p", r"loss (\d+)"), "pattern 'p': no named group for a metric"),
        (UserPattern("p", r"(?P<step>\d+)"), "pattern 'p': no named group for a metric"),
        (UserPattern("p", r"(?P<loss>\d+)", {"lr": "x"}), "pattern 'p': it has no group 'lr' to rename or scale"),
        (UserPattern("p", r"(?P<loss>\d+)", {}, {"lr": 2.0}), "pattern 'p': it has no group 'lr' to rename or scale"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(tmp_path: Path, pattern: UserPattern, told: str) -> None:
    with pytest.raises(BadConfig) as caught:
        source_of(tmp_path, LINES, pattern)
    assert told in str(caught.value)


def test_a_pattern_that_backtracks_is_stopped_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "SECONDS_PER_LINE", 0.05)
    bad = UserPattern("bad", r"^(?:a|a|b)*(?:a|aa)+(?P<loss>c)$")
    began = time.monotonic()
    with pytest.raises(
        BadInput, match=r"pattern 'bad' takes more than 0.05 s on the line 'aaa.*was stopped; make its"
    ) as caught:
        source_of(tmp_path, "a" * 5_000 + "!\n", bad)
    assert time.monotonic() - began < 30  # hours without the limit
    assert "\n" not in str(caught.value)


def test_patterns_stand_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "watchkeeper.toml"
    path.write_text(
        "[[run]]\nsource = 'run.log'\n[[pattern]]\nname = 'ours'\nregex = 'L=(?P<loss>\\S+)'\n"
        "scale = {loss = 2}\n[[pattern]]\nname = 'x'\nregex = 'y'\n"
    )
    config = load_config(path)
    assert UserPattern(**config.pattern[0].model_dump()) == UserPattern("ours", r"L=(?P<loss>\S+)", {}, {"loss": 2.0})
    path.write_text("[[pattern]]\nname = 'a'\nregexp = 'x'\n[[pattern]]\nname = 'a'\nregex = 'x'\n")
    with pytest.raises(BadConfig, match=r"pattern\[1\].regexp: no such key; did you mean regex\?"):
        load_config(path)
