"""Console logs of trainers, read by the forms of grammar.py; bars that end in carriage returns, colours and noise among them."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from flows.records import Batch, Description
from flows.sources.contract import refuse
from flows.sources.cursor import decode
from flows.sources.grammar import Form, Reading, UserPattern, built_in, read_line, users
from flows.sources.lines import Place, place_of, read_lines, still_there
from flows.sources.rows import FLUSH_ROWS, Rows
from flows.sources.shapes import shape_of
from flows.sources.textrows import TextRows

LOOK_AT_BYTES = 8 << 20  # a trainer that has printed no metric until then has none to print
_FIRST_LINES = 2_000  # that are looked at before the file is tried as a table: enough for a log that begins at once
_FEW = 64
# `key=value` is believed to be a log where lines differ in their numbers alone, or a metric has values at many steps:
_SAME, _MANY = 2, 16  # steps; a program's text and a recipe have such lines too, each another one
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|[@-Z\\^_])")


@dataclass(frozen=True)
class TextLog:
    """A console log. `dialect` is that of its first line with metrics; lines of the others are read as well."""

    path: Path
    run: str
    source: str
    wanted: str | None
    dialect: str
    step_key: str
    forms: tuple[Form, ...]

    def describe(self) -> Description:
        return Description(self.run, self.source, f"text/{self.dialect}", self.step_key)

    def pull(self, cursor: str | None) -> Iterator[Batch]:
        state = decode(cursor, "text")
        start, restart = place_of(state), False
        grammar = self._grammar()
        if cursor and (state.get("grammar") != grammar or not still_there(self.path, start)):
            state, start, restart = {}, Place(), True
        rows, place = Rows(self.path), start
        text = TextRows(rows, self.forms, self.wanted, state)
        for piece in read_lines(self.path, start, returns=True):
            if not piece.whole:
                break  # a number at its end may be half a number
            text.add(_texts(piece.lines))
            place = piece.place
            if len(rows) >= FLUSH_ROWS:
                yield _batch(text, place, grammar, restart)
                restart = False
        if restart or place != start:
            yield _batch(text, place, grammar, restart)

    def _grammar(self) -> str:
        """What the file is read by: a cursor of another grammar is none of ours."""
        mine = [(form.kind, form.regex.pattern, *sorted(form.names.items())) for form in self.forms if form.users]
        said = repr((self.wanted, self.forms[-1].last_resort, mine))
        return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def open_text(
    path: Path,
    run: str,
    source: str,
    wanted: str | None,
    patterns: Sequence[UserPattern],
    *,
    thorough: bool,
) -> TextLog | None:
    """A console log whose beginning holds lines that a pattern knows; None where there are none.

    `thorough` looks further into the file, and at last for any `key=value`. Raises BadInput where no number is called
    `wanted`.
    """
    specific = (*users(patterns), *(form for form in built_in() if not form.last_resort))
    resort = tuple(form for form in built_in() if form.last_resort)
    forms = specific
    found = _first(_beginning(path, thorough=thorough), specific)
    if not found and thorough:
        found, forms = _repeated(_beginning(path, thorough=True), resort), (*specific, *resort)
    if not found:
        return None
    form = found[0].form
    names = {name for reading in found for name, _, _ in reading.metrics}
    if wanted not in (None, form.step_key) and wanted not in names:
        what = f"no number {wanted!r} in its first lines with metrics (there is {', '.join(sorted(names)[:12])})"
        raise refuse(path, what, "name one of these with --step-key")
    return TextLog(path, run, source, wanted, form.dialect, wanted or form.step_key, forms)


def _first(blocks: Iterable[list[str]], forms: Sequence[Form]) -> list[Reading]:
    """The first lines that a form knows, of one block; few are enough."""
    for lines in blocks:
        text = "\n".join(lines)
        likely = [form for form in forms if form.has in text]
        readings = (read_line(line, likely) for line in lines)
        found = list(islice((reading for reading in readings if reading is not None), _FEW))
        if found:
            return found
    return []


def _repeated(blocks: Iterable[list[str]], forms: Sequence[Form]) -> list[Reading]:
    """Lines of a log; none where all of them are only texts in which a step and a number stand."""
    found: list[Reading] = []
    steps: dict[str, set[float | None]] = defaultdict(set)  # by the line without its numbers, and by metric
    believed = False
    for lines in blocks:
        for line in lines:
            reading = read_line(line, forms)
            if reading is not None:
                found.append(reading)
                for said in (shape_of(line), *(name for name, _, _ in reading.metrics)):
                    steps[said].add(reading.step(line))
                believed |= len(steps[shape_of(line)]) >= _SAME
                believed |= max(len(steps[name]) for name, _, _ in reading.metrics) >= _MANY
                if believed and len(found) >= _FEW:
                    return found
    return found if believed else []


def _beginning(path: Path, *, thorough: bool) -> Iterator[list[str]]:
    for piece in read_lines(path, Place(), returns=True):
        if piece.whole:
            yield _texts(piece.lines if thorough else piece.lines[:_FIRST_LINES])
        if piece.place.offset >= LOOK_AT_BYTES or not thorough:
            return


def _texts(lines: Sequence[bytes]) -> list[str]:
    text = b"\n".join(lines).decode("utf-8", "replace")
    if "\x1b" in text:
        text = _CONTROL.sub("", text)
    return [line for line in map(str.rstrip, text.split("\n")) if line]


def _batch(text: TextRows, place: Place, grammar: str, restart: bool) -> Batch:
    rows, notes = text.rows.take()
    state = {"format": "text", "grammar": grammar, **asdict(place), **text.state()}
    return Batch(rows, json.dumps(state), restart, notes)
