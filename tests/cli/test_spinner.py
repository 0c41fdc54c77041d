"""The spinner of `check`: nothing without a terminal, and a count of samples when a pull takes long."""

import io
import sys

import pytest

from flows.verbs import check


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("after", "shown"), [(-1.0, True), (60.0, False)])
def test_a_long_pull_is_counted(monkeypatch: pytest.MonkeyPatch, after: float, shown: bool) -> None:
    monkeypatch.setattr(check, "LONG_SECONDS", after)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with check._spinner() as progress:
        progress(1_234_567)
    assert ("1,234,567 samples so far" in sys.stderr.getvalue()) == shown
    assert "reading and judging" in sys.stderr.getvalue()


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with check._spinner() as progress:
        progress(5)
    assert capsys.readouterr().err == ""
