"""What Apprise and its HTTP library log holds whole URLs at DEBUG, with tokens. None of it reaches a handler."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("apprise", "urllib3.connectionpool", "requests", "urllib3")
_ONE_AT_A_TIME = threading.Lock()  # the loggers are the process's own


class _Holder(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.lines.append(record.getMessage()[:4000])
        return False


@contextmanager
def held_back() -> Iterator[list[str]]:
    """Catches what would be logged, for the caller to read, and lets none of it through."""
    holder = _Holder()
    with _ONE_AT_A_TIME:
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.addFilter(holder)
        loggers[0].setLevel(logging.DEBUG)  # the answer's body, with its `retry_after`, is told at DEBUG only
        try:
            yield holder.lines
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
                logger.removeFilter(holder)
