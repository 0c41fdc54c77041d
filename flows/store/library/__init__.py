"""Named queries: SQL files that carry their title and their parameters in the comment lines at their head.

The first line is the title; each further one a parameter: `-- $name text = 'default': what it is` or `-- $name number: ...`
(without a default it must be given).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from flows.errors import BadQuery
from flows.store.literals import written_out

_PARAMETER = re.compile(
    r"--\s*\$(?P<name>[a-z_]\w*)\s+(?P<kind>text|number)(?:\s*=\s*(?P<default>'(?:[^']|'')*'|[-+\d.eE]+))?\s*:\s*(?P<meaning>.+)"
)


@dataclass(frozen=True)
class Parameter:
    """`kind` is text or number; without a default (None) it must be given."""

    name: str
    kind: str
    meaning: str
    default: str | float | None = None


@dataclass(frozen=True)
class Query:
    """A query with places `$name` for its parameters."""

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    sql: str


@cache
def library() -> Mapping[str, Query]:
    """Every query that ships, by name."""
    files = [f for f in resources.files("flows.store").joinpath("library").iterdir() if f.name.endswith(".sql")]
    return {f.name[:-4]: parse(f.name[:-4], f.read_text(encoding="utf-8")) for f in sorted(files, key=lambda f: f.name)}


def find(name: str) -> Query:
    """The query of the library, or the one in a file of the user's own. Raises BadQuery."""
    if name.endswith(".sql"):
        try:
            return parse(Path(name).stem, Path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadQuery(f"{name}: cannot be read: {error}") from None
    if name not in library():
        raise BadQuery(f"no query {name!r}: there are {', '.join(library())}; or give a file that ends in .sql.")
    return library()[name]


def parse(name: str, text: str) -> Query:
    """A query from the text of its file. Raises BadQuery for a parameter line that cannot be read."""
    head = [line for line in text.splitlines() if line.startswith("--")]
    title = head[0].removeprefix("--").strip() if head else name
    found: list[Parameter] = []
    for line in head[1:]:
        if (match := _PARAMETER.fullmatch(line)) is not None:
            found.append(Parameter(match["name"], match["kind"], match["meaning"], _default(match)))
        elif re.match(r"--\s*\$", line):
            raise BadQuery(f"query {name}: {line!r} is no parameter; write `-- $name text = 'default': what it is`.")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return Query(name, title, tuple(found), body.strip())


def _default(match: re.Match[str]) -> str | float | None:
    given = match["default"]
    if given is None:
        return None
    return given[1:-1].replace("''", "'") if match["kind"] == "text" and given[0] == "'" else float(given)


def filled(query: Query, given: Mapping[str, str]) -> str:
    """The SQL with its parameters written out. Raises BadQuery for one that is missing, unknown or no number."""
    known = {each.name: each for each in query.parameters}
    if unknown := sorted(given.keys() - known.keys()):
        raise BadQuery(f"query {query.name} has no parameter {unknown[0]!r}; it has {', '.join(known) or 'none'}.")
    values: dict[str, Any] = {}
    for each in query.parameters:
        if each.name in given:
            values[each.name] = _number(query, each, given[each.name]) if each.kind == "number" else given[each.name]
        elif each.default is None:
            raise BadQuery(f"query {query.name} needs --param {each.name}=...: {each.meaning}.")
        else:
            values[each.name] = each.default
    try:
        return written_out(query.sql, values)
    except KeyError as error:
        raise BadQuery(f"query {query.name}: ${error.args[0]} has no line at its head that says what it is.") from None


def named(name: str, /, **given: str | float) -> str:
    """The SQL of a query of the library with its parameters, for `connect().sql(named("curve", run=..., name=...))`."""
    return filled(find(name), {key: str(value) for key, value in given.items()})


def _number(query: Query, parameter: Parameter, text: str) -> float:
    try:
        return float(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise BadQuery(f"query {query.name}: --param {parameter.name}={text!r} is no number.") from None
