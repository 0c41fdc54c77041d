import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.messages.as_markdown import escape
from flows.messages.plain import magnitude, number, plain, plain_lines, quiet, step
from flows.messages.split import split


@given(st.text())
def test_plain_text_is_one_line_without_control_or_direction_characters(text):
    shown = plain(text)
    assert "\n" not in shown and "\x1b" not in shown and "\u202e" not in shown and "\x00" not in shown
    assert plain(shown) == shown


@given(st.text(), st.integers(1, 50))
def test_plain_text_keeps_to_its_limit(text, limit):
    assert len(plain(text, limit)) <= limit


def test_terminal_commands_leave_no_trace():
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07ok") == "red ok"
    assert plain_lines("a\x1b[2J\nb") == "a\nb"


@given(st.text(min_size=0, max_size=2000), st.integers(20, 300))
def test_every_piece_of_a_split_text_fits_and_nothing_is_lost(text, limit):
    pieces = split(text, limit)
    assert all(len(piece) <= limit for piece in pieces)
    whole = "".join(piece.rpartition(" (")[0] if len(pieces) > 1 else piece for piece in pieces)
    assert whole.replace("\n", "") == text.replace("\n", "")


@given(st.text(alphabet="`*_[]<>#|~\\&$@-+=1.) ab\n", max_size=60))
def test_every_sign_of_markdown_is_escaped(text):
    shown = escape(text)
    for sign in "`*_[]#|~$":
        assert shown.count(sign) == shown.count("\\" + sign)


@pytest.mark.parametrize("call", ["@everyone", "@here", "<!channel>", "<@U123>", "<#C1>", "a @channel b", "x@everyone"])
def test_calls_lose_their_power(call):
    assert call not in quiet(call)
    assert quiet(call).replace("\u2060", "") == call


def test_a_mail_address_stays_whole():
    assert quiet("ana@example.org") == "ana@example.org"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.83, "1.83"),
        (12345.6, "12,346"),
        (0.0, "0"),
        (3e-7, "3e-07"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, shown):
    assert number(value) == shown


def test_steps_keep_what_they_count():
    assert (step(81716.0), step(0.5), step(None)) == ("81,716", "0.5", "unknown")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.92, "log", "×2.51"), (0.1, "log", "+11 %"), (-0.05, "fraction", "−5 %"), (3.0, "steps", "3 steps")],
)
def test_magnitudes_are_told_as_factor_percent_or_with_their_unit(value, unit, shown):
    assert magnitude(value, unit) == shown
