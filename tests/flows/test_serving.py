"""What `serve` does about a server of its own that is slow, or that ends."""

from pathlib import Path

import pytest

from flows.serving import Server, StartFailed
from flows.verbs.serve import bring_up


class Sluggish(Server):
    """Answers at the third asking, if it lives."""

    lives = True
    asked = 0

    def start(self) -> None:
        """Nothing to start."""

    def alive(self) -> bool:
        return self.lives

    def await_health(self, seconds: float = 0.0) -> None:
        self.asked += 1
        if self.asked < 3:
            raise StartFailed("does not answer after 120 s")


def test_a_server_that_takes_long_on_a_busy_machine_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bring_up(Sluggish(tmp_path, 4200))
    assert capsys.readouterr().err.splitlines() == [
        "watchkeeper: does not answer after 120 s; waiting on",
        "watchkeeper: does not answer after 120 s; waiting on",
        "watchkeeper: the Prefect server is up: http://127.0.0.1:4200",
    ]


def test_a_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    gone = Sluggish(tmp_path, 4200)
    gone.lives = False
    with pytest.raises(StartFailed):
        bring_up(gone)
