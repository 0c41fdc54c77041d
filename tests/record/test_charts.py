import json
import re
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from flows.record.charts import incident_chart, png, svg
from flows.record.curves import Curve, Predicted
from flows.record.markers import markers
from flows.record.pictures import describe, draw, inline
from flows.records import Event


def texts(drawing):
    return [re.sub("<[^>]+>", "", text) for text in re.findall(r"<text[^>]*>(.*?)</text>", drawing)]


def pixels(picture):
    """Height x width x channels of a PNG with 8-bit samples."""
    position, body, width, height, channels = 8, b"", 0, 0, 0
    while position < len(picture):
        (length,), kind = struct.unpack(">I", picture[position : position + 4]), picture[position + 4 : position + 8]
        data = picture[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", data[:10])
            channels = {2: 3, 6: 4}[colour]
        body += data if kind == b"IDAT" else b""
        position += 12 + length
    raw = np.frombuffer(zlib.decompress(body), dtype=np.uint8).reshape(height, 1 + width * channels)
    out = np.zeros((height, width * channels), dtype=np.uint8)
    for row in range(height):
        out[row] = unfiltered(raw[row, 0], raw[row, 1:], out[row - 1] if row else np.zeros_like(out[0]), channels)
    return out.reshape(height, width, channels)


def unfiltered(kind, line, above, channels):
    if kind in (0, 2):
        return line + (above if kind == 2 else 0)
    if kind == 1:
        return (np.cumsum(line.reshape(-1, channels).astype(np.int64), axis=0) & 255).astype(np.uint8).ravel()
    # plain lists: numpy takes five times as long for one number at a time
    up, out = [0] * channels + above.tolist(), [0] * channels
    for i, given in enumerate(line.tolist()):
        left, over, corner = out[i], up[i + channels], up[i]
        out.append((given + ((left + over) // 2 if kind == 3 else paeth(left, over, corner))) & 255)
    return np.array(out[channels:], dtype=np.uint8)


def paeth(left, over, corner):
    near = left + over - corner
    return min((abs(near - left), 0, left), (abs(near - over), 1, over), (abs(near - corner), 2, corner))[2]


def test_the_chart_is_a_valid_specification(incident, curves, events, attempts):
    import altair as alt

    alt.VConcatChart.from_dict(incident_chart(incident, curves, events, attempts))


def test_every_series_has_its_panel_on_the_same_steps(incident, curves, events, attempts):
    spec = incident_chart(incident, curves, events, attempts)
    strip, first, second = spec["vconcat"]
    assert [panel["title"]["text"] for panel in (first, second)] == [["train/loss (nats)"], ["grad/norm/total"]]
    spans = {
        json.dumps(layer["encoding"]["x"]["scale"]["domain"])
        for panel in (strip, first, second)
        for layer in panel["layer"]
    }
    assert len(spans) == 1
    assert spec["resolve"] == {"scale": {"x": "shared"}}


def test_the_words_of_the_chart_tell_what_happened(incident, curves, events, attempts):
    said = texts(svg(incident_chart(incident, curves, events, attempts)))
    for words in ("began 5,204", "seen 5,222", "attempt 1 from 5,150", "resume 5,150: from checkpoint 5,150", "step"):
        assert words in said
    assert any(text.startswith("S3, open") for text in said)
    assert any(text.startswith("train/loss diverged from 1.83 to 4.61") for text in said)
    assert any("× NaN" in text for text in said) and any("▲ Infinity" in text for text in said)
    assert any("dashed: abandoned attempt" in text for text in said)


def test_a_resolution_is_marked(incident, curves):
    resolved = {**incident, "status": "resolved", "resolved_step": 5300.0}
    assert "resolved 5,300" in texts(svg(incident_chart(resolved, curves)))


def test_an_onset_that_was_seen_at_once_is_one_mark(incident):
    marks = markers({**incident, "detected_step": incident["onset_step"]}, [], [], (5000.0, 5400.0))
    assert [mark.label for mark in marks] == ["began and seen 5,204"]


def test_only_the_nearest_events_are_marked(incident):
    events = [Event("deploy", 5000.0 + n) for n in range(100)]
    marks = markers(incident, events, [], (4000.0, 6000.0))
    assert [mark.step for mark in marks if mark.look == "event"] == [5096.0, 5097.0, 5098.0, 5099.0]


def test_a_spike_of_one_sample_in_two_hundred_thousand_is_in_the_picture(incident):
    step = np.arange(200_000.0)
    value = np.ones(len(step)) + np.random.default_rng(1).normal(0, 0.01, len(step))
    value[120_000] = 7.0
    about = {**incident, "onset_step": 20_000.0, "detected_step": 180_000.0, "findings": []}
    spec = incident_chart(about, [Curve("m", step, value, np.zeros(len(step), dtype=np.int64))])
    drawn = [row["value"] for rows in spec["datasets"].values() for row in rows if "part" in row]
    assert max(drawn) == 7.0
    assert len(drawn) < 1000


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def picture(known, incident, curves, events, attempts):
    """The pixels of one chart, drawn once."""
    if "picture" not in known:
        known["picture"] = pixels(png(incident_chart(incident, curves, events, attempts), scale=1.0))[:, :, :3]
    return known["picture"].astype(int)


def test_the_picture_has_the_tones_where_they_belong(picture):
    height, width, _ = picture.shape
    assert 400 < width < 540 and 400 < height < 700
    blue = (np.abs(picture - [29, 95, 169]).sum(axis=2) < 60).nonzero()
    red = (np.abs(picture - [179, 38, 31]).sum(axis=2) < 60).nonzero()
    assert len(blue[0]) > 300 and len(red[0]) > 100
    # the loss climbs: its line is higher at the right than at the left of the first panel
    first = blue[0] < height * 0.68
    left, right = blue[0][first & (blue[1] < width * 0.3)], blue[0][first & (blue[1] > width * 0.9)]
    assert np.median(right) < np.median(left) - 40


def test_lines_differ_in_lightness_so_that_grey_is_enough(picture):
    grey = picture @ [0.299, 0.587, 0.114]
    assert grey.max() - grey.min() > 200
    assert ((grey > 60) & (grey < 110)).sum() > 300  # the lines
    assert ((grey > 150) & (grey < 230)).sum() > 300  # the band


@pytest.mark.parametrize("value", [[np.nan] * 50, [3.0] * 50, [np.inf] * 50, [1.0], [0.0, 1e30] * 25, [1e-300] * 50])
def test_odd_series_are_drawn_too(incident, value):
    step = np.arange(5190.0, 5190.0 + len(value))
    chart = incident_chart(incident, [Curve("m", step, np.array(value), np.zeros(len(step), dtype=np.int64))])
    assert png(chart, scale=0.5).startswith(b"\x89PNG")


def test_without_samples_there_is_no_chart(incident):
    with pytest.raises(ValueError, match="no samples to draw"):
        incident_chart(incident, [])


@pytest.mark.parametrize(
    "name", ["<script>x</script>", "a&b\"c'", "\x00\x1b[31m", "${x} {{y}} datum.z", "x" * 500, "=cmd()"]
)
def test_a_hostile_name_is_drawn_as_text(incident, curves, name):
    from xml.etree import ElementTree

    hostile = {**incident, "title": name, "findings": []}
    drawing = svg(
        incident_chart(
            hostile, [Curve(name, curves[0].step, curves[0].value, curves[0].attempt)], [Event(name, 5204.0)]
        )
    )
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(drawing).iter()}
    assert "script" not in tags and tags <= {"svg", "g", "rect", "path", "line", "text", "tspan", "defs", "clipPath"}


def test_pictures_of_a_page_take_its_theme_and_keep_their_ids_apart(incident, curves, events, attempts):
    picture = draw(incident, curves, events, attempts)
    assert "#1d5fa9" not in picture.wide and "var(--line)" in picture.wide
    assert incident["title"] not in picture.wide  # the page has it as its heading
    ids = [re.findall(r'\bid="([^"]+)"', drawing) for drawing in (picture.narrow, picture.wide)]
    assert not set(ids[0]) & set(ids[1])
    assert picture.wide.count('role="img"') == 1 and "It began at step 5,204 and was seen at step 5,222" in picture.alt


def test_what_is_no_drawing_is_refused():
    with pytest.raises(ValueError, match="no SVG"):
        inline("<p>", "x", "y")


@pytest.fixture
def expected(curves):
    """The curves with what a ladder expects of the loss, a rung of which ended at step 5,250."""
    step = np.array([3500.0, 5300.0, 6000.0])
    part = Predicted(step, np.full(3, 1.78), np.full(3, 1.83), np.full(3, 1.88), known_until=5250.0)
    return [replace(curves[0], ladder=(part,)), curves[1]]


def test_what_the_ladder_expects_is_drawn_with_its_words_and_its_horizon(incident, expected, events, attempts):
    spec = incident_chart(incident, expected, events, attempts)
    said = texts(svg(spec))
    assert sum("dash-dotted: expected from the ladder (90 %)" in text for text in said) == 1
    assert "ladder extrapolated from 5,250" in said
    first, last = spec["vconcat"][1]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    (band,) = [rows for rows in spec["datasets"].values() if rows and "centre" in rows[0]]
    assert (band[0]["step"], band[-1]["step"], band[0]["value"], band[0]["high"]) == (first, last, 1.78, 1.88)


def test_a_horizon_that_lies_behind_the_chart_is_not_marked(incident, expected):
    later = replace(expected[0].ladder[0], known_until=9000.0)
    said = texts(svg(incident_chart(incident, [replace(expected[0], ladder=(later,))])))
    assert not any("extrapolated" in text for text in said)


def test_a_band_far_from_the_samples_is_on_the_chart_and_a_wide_one_does_not_flatten_them(incident, curves):
    step = np.array([3500.0, 6000.0])
    for low, high in ((9.0, 9.2), (-500.0, 500.0)):
        part = Predicted(step, np.full(2, low), np.full(2, (low + high) / 2), np.full(2, high))
        spec = incident_chart(incident, [replace(curves[0], ladder=(part,))])
        bottom, top = spec["vconcat"][1]["layer"][1]["encoding"]["y"]["scale"]["domain"]
        assert bottom < 2 and top > 4.5  # the loss goes from 1.8 to 4.6
        assert top > min(low, 9)
        assert top - bottom < 20


def test_the_band_of_the_ladder_is_told_apart_in_grey(incident, expected):
    with_, without = (
        pixels(png(incident_chart(incident, each), scale=1.0))[:, :, :3].astype(float) @ [0.299, 0.587, 0.114]
        for each in (expected, [replace(curve, ladder=()) for curve in expected])
    )
    assert ((with_ > 80) & (with_ < 130)).sum() > ((without > 80) & (without < 130)).sum() + 150


def test_the_band_of_the_ladder_takes_the_theme_of_a_page_and_is_put_in_words(incident, expected):
    words = describe(incident, expected)
    drawing = inline(svg(incident_chart(incident, expected)), "x", words)
    assert "#8a5a00" not in drawing and "var(--ladder)" in drawing
    assert words.endswith("The band that is expected from the ladder is drawn for train/loss.")
