"""What lines of console logs look like: patterns/*.toml and the user's own patterns, as forms that read one line.

A form finds a line by `regex`. Its group `step` is the step (with `epoch` and `of`: epoch * of + step; `time`: when it was
logged), every other named group a metric. `pairs` finds further metrics by name (`name` or `known`) and `value`.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from flows.errors import BadConfig, BadInput
from flows.sources.numerals import NUMBER, TOKEN, value_of

MAX_LINE_CHARS = 20_000  # a longer one is no line that a trainer prints
SECONDS_PER_LINE = 1.0  # for a pattern of the user's; a good one takes microseconds
_TOKEN = re.compile(TOKEN, re.ASCII)
_OWN = frozenset({"step", "epoch", "of", "time"})
_FILE = re.compile(r"\.(?:py|cpp|cc|cu|c|h|so|json|ya?ml|txt|log)$|^/")
# numbers of a free text that are no metrics of the run
_NO_METRIC = frozenset(
    {
        "step", "steps", "global_step", "iter", "iters", "iteration", "iterations", "update", "updates", "num_updates",
        "train_step", "training_step", "rank", "local_rank", "global_rank", "world_size", "pid", "port", "line",
        "lineno", "seed", "eta", "total", "gpu", "device", "node", "worker",
    }
)  # fmt: skip


@dataclass(frozen=True)
class UserPattern:
    """A pattern as the user wrote it: see docs/sources.md."""

    name: str
    regex: str
    names: Mapping[str, str] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """One kind of line. `kind` names it in a cursor; a name that `names` maps to "" is no metric."""

    kind: str
    dialect: str
    step_key: str
    regex: Any
    pairs: re.Pattern[str] | None = None
    has: str = ""
    prefix: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)  # by the name that comes out; users' patterns only
    counts: bool = False  # it holds no step: its lines are counted
    redrawn: bool = False  # a terminal shows it again and again: a repetition says nothing new
    whole: bool = False  # `pairs` stand before the step too
    last_resort: bool = False
    users: bool = False


@dataclass(frozen=True)
class Reading:
    """Where the numbers of a line stand: their first characters; and where its text begins."""

    form: Form
    start: int
    marks: Mapping[str, int]  # step, epoch, of
    metrics: tuple[tuple[str, int, int], ...]  # name, first and last character
    time: str | None = None

    def step(self, line: str) -> float | None:
        """The step in the line it was read from."""
        return value_of(line[self.marks["step"] :]) if "step" in self.marks else None


@cache
def built_in() -> tuple[Form, ...]:
    """The forms of patterns/*.toml, in the order of their files; those of the last resort last."""
    files = sorted((Path(__file__).parent / "patterns").glob("*.toml"))
    dialects = [tomllib.loads(path.read_text(encoding="utf-8")) for path in files]
    found = [form for dialect in dialects for form in _forms(dialect)]
    return tuple(sorted(found, key=lambda form: form.last_resort))


def _forms(dialect: Mapping[str, Any]) -> Iterator[Form]:
    for at, line in enumerate(dialect["line"]):
        pairs = line.get("pairs")
        yield Form(
            kind=f"{dialect['name']}/{at}",
            dialect=dialect["name"],
            step_key=dialect["step_key"],
            regex=re.compile(line["regex"].replace("{number}", NUMBER)),
            pairs=re.compile(pairs.replace("{number}", NUMBER)) if pairs else None,
            last_resort=dialect.get("last_resort", False),
            **{key: line[key] for key in ("has", "prefix", "names", "counts", "redrawn", "whole") if key in line},
        )


def users(patterns: Iterable[UserPattern]) -> tuple[Form, ...]:
    """The forms of a user's patterns. Raises BadConfig for one that cannot be used."""
    return tuple(_users(pattern) for pattern in patterns)


def _users(pattern: UserPattern) -> Form:
    import regex  # our own patterns need no time limit

    try:
        compiled = regex.compile(pattern.regex)
    except regex.error as error:
        raise BadConfig(f"pattern {pattern.name!r}: no regular expression ({error}); mend it.") from None
    groups = set(compiled.groupindex)
    if not groups - _OWN:
        what = "no named group for a metric; write for instance loss (?P<loss>\\S+)"
        raise BadConfig(f"pattern {pattern.name!r}: {what}.")
    if unknown := (set(pattern.names) | set(pattern.scale)) - groups:
        raise BadConfig(f"pattern {pattern.name!r}: it has no group {sorted(unknown)[0]!r} to rename or scale.")
    step_key = "step" if "step" in groups else "row number"
    return Form(
        kind=f"user/{pattern.name}",
        dialect=pattern.name,
        step_key=step_key,
        regex=compiled,
        names=pattern.names,
        scale={pattern.names.get(name, name): factor for name, factor in pattern.scale.items()},
        counts="step" not in groups,
        users=True,
    )


def read_line(line: str, forms: Sequence[Form]) -> Reading | None:
    """What the first form that fits finds in a line. Raises BadInput where a user's pattern takes too long."""
    if len(line) > MAX_LINE_CHARS:
        return None
    plain = _TOKEN.sub(_without_commas, line) if "," in line else line
    for form in forms:
        text = line if form.users else plain
        if form.has in text and (found := _search(form, text)) is not None:
            reading = _reading(form, text, found)
            if reading is not None:
                return reading
    return None


def _without_commas(found: re.Match[str]) -> str:
    """`1,000` as `01000`: a step may have commas, and stays where it stands."""
    return found[0].replace(",", "").zfill(len(found[0])) if "," in found[0] else found[0]


def _search(form: Form, line: str) -> Any:
    if not form.users:
        return form.regex.search(line)
    try:
        return form.regex.search(line, timeout=SECONDS_PER_LINE)
    except TimeoutError:
        what = f"pattern {form.dialect!r} takes more than {SECONDS_PER_LINE:g} s on the line {line[:60]!r}"
        how = "make its repetitions exclusive, such as [^|]* for .* and \\d+ for (\\d+)*"
        raise BadInput(f"{what} and was stopped; {how}.") from None


def _reading(form: Form, line: str, found: Any) -> Reading | None:
    marks: dict[str, int] = {}
    metrics: list[tuple[str, int, int]] = []
    time = None
    for group in found.re.groupindex:
        start, end = found.span(group)
        if start < 0:
            continue
        if group == "time":
            time = found[group]
        elif group in _OWN:
            marks[group] = start
        else:
            metrics.append((group, start, end))
    for pair in form.pairs.finditer(line, 0 if form.whole else found.end()) if form.pairs else ():
        groups = pair.groupdict()
        metrics.append((groups["name"] or groups["known"], *pair.span("value")))
    used = {marks.get("step")}
    named = tuple((name, start, end) for raw, start, end in metrics if start not in used and (name := _name(form, raw)))
    return Reading(form, found.start(), marks, named, time) if named else None


def _name(form: Form, raw: str) -> str:
    """What a metric is called; "" for a number that is none."""
    name = form.names.get(raw, raw.strip(" ,;|-") if form.pairs else raw)
    if form.last_resort and (name.lower().replace(" ", "_") in _NO_METRIC or _FILE.search(name)):
        return ""
    return form.prefix + name if name else ""
