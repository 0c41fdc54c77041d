"""Whose line it is where several ranks write into one stream: the label before it, and the one rank that is listened to."""

import re
from typing import Any

PATIENCE = 64  # lines of one other rank without one of the rank listened to: it is gone (a restart moved the writer)
_MOST_OTHERS = 256
_LABEL = re.compile(
    r"^[ ]{0,8}\d{1,6}:(?=\s|\[)"  # srun --label
    r"|\[\d{1,6},\d{1,6}\](?=<std)"  # mpirun --tag-output
    r"|(?<![A-Za-z])(?:global[_ ]|local[_ ])?(?:rank|default|worker|trainer|host|node|device|gpu)[ _:=/-]?\d{1,6}(?!\d)"
    r"|\bpid=\d{1,9}(?:, ip=[\d.]{7,15})?"  # Ray
    r"|(?:\b[A-Z]P=\d{1,6}\|?){1,8}",  # nanotron
    re.IGNORECASE,
)
PREFIX_CHARS = 200  # a label stands this near to the beginning of its line


def label_of(line: str, end: int) -> str:
    """What names the writer in the text before `end`, "" where nothing does."""
    return " ".join(found.strip(" |:") for found in _LABEL.findall(line, 0, min(end, PREFIX_CHARS)))


class Origins:
    """One writer for each kind of line: the first that writes it, until only others do.

    Ranks log the same step with values of their own, which must not be mixed. Another rank takes over after PATIENCE
    lines of it without a line of the first: after a restart the last rank may have another number.
    """

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._owners: dict[str, str] = dict((state or {}).get("owners", {}))
        self._others: dict[str, dict[str, int]] = {
            kind: dict(counts) for kind, counts in (state or {}).get("others", {}).items()
        }

    def state(self) -> dict[str, Any]:
        return {"owners": self._owners, "others": self._others}

    def is_of(self, kind: str, label: str) -> bool:
        """Whether a kind of line is written by nobody else so far."""
        return self._owners.setdefault(kind, label) == label and not self._others.get(kind)

    def takes(self, kind: str, label: str) -> bool:
        """Whether a line of this writer is taken."""
        owner = self._owners.setdefault(kind, label)
        others = self._others.get(kind)
        if owner == label:
            if others:
                others.clear()
            return True
        others = self._others.setdefault(kind, {})
        if label in others or len(others) < _MOST_OTHERS:
            others[label] = others.get(label, 0) + 1
        if others.get(label, 0) < PATIENCE:
            return False
        others.clear()
        self._owners[kind] = label
        return True

    def note(self, kind: str) -> str:
        """How to count a line that was not taken."""
        return f"line of another rank than {self._owners[kind] or 'the one without a label'}, which is the one taken"
