"""What makes a chart readable at once: levels in noise, names, labels, numbers, and what lies on what."""

import re

import numpy as np
import pytest
from test_charts import texts

from flows.record.charts import incident_chart, svg
from flows.record.curves import Curve
from flows.records import Event


def noisy(level, size=600, after=300):
    value = np.random.default_rng(3).normal(0, 0.2, size) + 2.0
    value[after:] += level
    return Curve("m", np.arange(float(size)), value, np.zeros(size, dtype=np.int64))


def drawn(spec, mark, **look):
    """The rows of the layers of a mark, by what else it looks like."""
    layers = [layer for panel in spec["vconcat"] for layer in panel["layer"]]
    shown = [each for each in layers if isinstance(each["mark"], dict) and each["mark"]["type"] == mark]
    wanted = [each for each in shown if all(each["mark"].get(key) == value for key, value in look.items())]
    return [spec["datasets"][each["data"]["name"]] for each in wanted]


def test_in_noise_a_median_shows_the_level_and_a_line_that_can_be_followed_has_none(incident):
    about = {**incident, "onset_step": 300.0, "detected_step": 320.0, "findings": []}
    spec = incident_chart(about, [noisy(0.3)])
    (median,) = drawn(spec, "line", strokeWidth=2)
    before = [row["value"] for row in median if 150 < row["step"] < 280]
    after = [row["value"] for row in median if 320 < row["step"] < 450]
    assert np.mean(before) == pytest.approx(2.0, abs=0.05) and np.mean(after) == pytest.approx(2.3, abs=0.05)
    assert max(before) < 2.2 and min(after) > 2.1  # what single samples are not
    assert any("thick: running median" in text for text in texts(svg(spec)))
    smooth = Curve("m", np.arange(600.0), np.linspace(0, 1, 600), np.zeros(600, dtype=np.int64))
    spike = noisy(0.0)
    spike = Curve("m", spike.step, np.where(spike.step == 310, 90.0, spike.value), spike.attempt)
    for curve in (smooth, spike):
        assert drawn(incident_chart(about, [curve]), "line", strokeWidth=2) == []


def test_a_metric_that_moved_elsewhere_says_where(incident, curves):
    findings = [
        {**incident["findings"][1], "metric": "train/loss", "onset_step": at} for at in (5204.0, 5205.0, 5230.0, 5260.0)
    ]
    spec = incident_chart({**incident, "findings": findings}, curves)
    (diamonds,) = drawn(spec, "point", shape="diamond")
    assert [row["step"] for row in diamonds] == [5230.0, 5260.0]  # 5,205 is where it began, to the eye
    assert any("◊ moved from 5,230 and 5,260" in text for text in texts(svg(spec)))


def test_leaves_that_differ_at_their_ends_can_be_told_apart(incident, curves):
    names = [f"params/norm/stacked_blocks.{n}.attn.a_rather_long_leaf.weight" for n in range(2)]
    both = [Curve(name, curves[0].step, curves[0].value, curves[0].attempt, "nats") for name in names]
    spec = incident_chart(incident, both, width=370)
    titles = [panel["title"]["text"] for panel in spec["vconcat"][1:]]
    assert titles == [
        [f"params/norm/stacked_blocks.{n}.attn.a_", "rather_long_leaf.weight (nats)"] for n in range(2)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x" * 40, "x" * 76, "x/" * 60, "a" * 500, "a b " * 30])
def test_no_name_is_wider_than_its_panel(incident, curves, name):
    only = Curve(name, curves[0].step, curves[0].value, curves[0].attempt)
    (lines,) = [panel["title"]["text"] for panel in incident_chart(incident, [only], width=370)["vconcat"][1:]]
    assert len(lines) <= 2 and max(map(len, lines)) <= 40
    assert "".join(lines)[:8] == name[:8] and "".join(lines)[-8:] == name.rstrip()[-8:]


def test_a_label_is_cut_by_the_room_that_it_has(incident, curves):
    note = "learning rate 2e-3 with the other optimizer, as was decided on the evening before"
    events = [Event("lr_schedule", 5240.0, note=note)]
    wide, narrow = (
        next(
            row["label"]
            for row in incident_chart(incident, curves, events, width=w)["datasets"]["rows0"]
            if row["label"].startswith("lr_schedule")
        )
        for w in (900, 370)
    )
    assert wide.startswith("lr_schedule 5,240: learning rate 2e-3 with the other") and narrow.endswith("…")
    assert len(narrow) < 40


def test_a_narrow_chart_is_no_wider_for_its_words(incident, curves):
    long = [Event("lr_schedule", at, note="a note of some length " * 4) for at in (5000.0, 5100.0, 5240.0, 5390.0)]
    names = ["params/norm/" + "block." * 20, "leaf" * 50]
    both = [Curve(name, curves[0].step, curves[0].value, curves[0].attempt, "u" * 30) for name in names]
    about = {**incident, "onset_step": 5380.0, "detected_step": 5390.0, "resolved_step": 5395.0}
    drawing = svg(incident_chart(about, both, long, width=370, titled=False))
    assert float(re.search(r'viewBox="0 0 ([\d.]+)', drawing)[1]) < 400


def test_the_samples_lie_on_the_rules_that_mark_steps(incident, curves):
    panel = incident_chart(incident, curves)["vconcat"][1]
    kinds = [
        layer["mark"]["type"]
        for layer in panel["layer"]
        if "strokeDash" in layer["mark"] or layer["mark"]["type"] == "line"
    ]
    assert kinds.index("rule") < kinds.index("line")


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0, 3600, "1,000"),
        (2.0, 2.1, "2.02"),
        (81_716, 81_724, "81,720"),
        (0, 40_000, "10k"),
        (1.2700, 1.2704, "1.2702"),
    ],
)
def test_the_numbers_of_an_axis_differ_and_are_written_out(incident, low, high, shown):
    value = np.linspace(low, high, 300)
    chart = incident_chart(incident, [Curve("m", np.arange(5100.0, 5400.0), value, np.zeros(300, dtype=np.int64))])
    said = [text for text in texts(svg(chart)) if re.fullmatch(r"[\d.,k]+", text)]
    assert shown in said
    assert len(said) == len(set(said)) >= 8


def test_powers_of_ten_are_written_out(incident):
    value = np.where(np.arange(300) == 150, 3600.0, 2.0)
    chart = incident_chart(incident, [Curve("m", np.arange(5100.0, 5400.0), value, np.zeros(300, dtype=np.int64))])
    assert {"10", "100", "1,000"} <= set(texts(svg(chart)))
