"""The interactive shell of `watchkeeper sql`: statements up to a semicolon, with history and completion by readline."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from flows.errors import WatchkeeperError

MOST_REMEMBERED = 2_000
LEAVE = ("exit", "quit", ".quit", ".exit")
HELP = """End a statement with a semicolon. Tab completes tables, columns, runs and metrics; the arrows bring back what was asked.
  .list                        the named queries
  .run NAME KEY=VALUE ...      ask one of them (quote values with spaces)
  .tables                      what can be asked
  .help  .exit"""
TABLES = "SELECT table_name, string_agg(column_name, ', ') AS columns FROM information_schema.columns \
WHERE table_schema = 'main' AND NOT ends_with(table_name, '_rows') GROUP BY ALL ORDER BY ALL"
SQL_WORDS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "WITH", "JOIN", "LEFT JOIN", "AND", "NOT",
    "LIKE", "BETWEEN", "IS NULL", "DISTINCT", "UNION", "CASE", "WHEN", "QUALIFY", "FILTER", "EXPLAIN", "DESCRIBE", "SUMMARIZE",
    "count(*)", "median(", "quantile_cont(", "avg(", "min(", "max(", "sum(", "arg_max(", "isfinite(", "epoch(", "coalesce(",
]  # fmt: skip


def shell(ask: Callable[[str], None], words: Callable[[], Sequence[str]]) -> None:
    """Read statements until the input ends; a refused one does not end the shell. `words` is called once, to complete."""
    asks = sys.stdin.isatty()
    remember = _remembering(words) if asks else lambda: None
    if asks:
        print("watchkeeper sql, read-only. .help tells more, .exit leaves.", file=sys.stderr)  # noqa: T201
    pending = ""
    try:
        while True:
            try:
                line = input(("   ...> " if pending else "sql> ") if asks else "")
            except EOFError:
                break
            except KeyboardInterrupt:
                print(file=sys.stderr)  # noqa: T201
                pending = ""
                continue
            pending = f"{pending}\n{line}".strip()
            if pending in LEAVE:
                return
            if pending.startswith("."):
                _try(lambda text: _command(text, ask), pending)
                pending = ""
            elif pending.endswith(";"):
                _try(ask, pending)
                pending = ""
        if pending:
            _try(ask, pending)
    finally:
        remember()


def _command(text: str, ask: Callable[[str], None]) -> None:
    import shlex

    from flows.store.library import filled, find
    from flows.verbs.named import catalogue

    try:
        word, *rest = shlex.split(text.rstrip(";"))
    except ValueError:
        word, rest = ".help", []
    if word == ".list":
        print(catalogue())  # noqa: T201
    elif word == ".tables":
        ask(TABLES)
    elif word == ".run" and rest:
        ask(filled(find(rest[0]), dict(each.partition("=")[::2] for each in rest[1:])))
    else:
        print(HELP)  # noqa: T201


def _try(ask: Callable[[str], None], text: str) -> None:
    try:
        ask(text)
    except WatchkeeperError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)  # noqa: T201
    except KeyboardInterrupt:
        print("watchkeeper: stopped", file=sys.stderr)  # noqa: T201


def history_file() -> Path:
    """Where the shell keeps what was asked: the user's state folder, as the XDG specification names it."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "watchkeeper" / "sql_history"


def _remembering(words: Callable[[], Sequence[str]]) -> Callable[[], None]:
    """Set readline up; returns what writes the history down at the end."""
    try:
        import readline
    except ImportError:  # a Python that was built without it
        return lambda: None
    path = history_file()
    with suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(MOST_REMEMBERED)
    readline.set_completer(completer(words))
    readline.set_completer_delims(" \t\n,();=<>+")
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")

    def save() -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            readline.write_history_file(path)

    return save


def completer(words: Callable[[], Sequence[str]]) -> Callable[[str, int], str | None]:
    """A completer for readline; the words are asked for at the first Tab, so that the shell is there at once."""
    known: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if not known:
            known.extend([*SQL_WORDS, ".list", ".run", ".tables", ".help", ".exit"])
            with suppress(WatchkeeperError):  # a store that is busy just now: SQL's own words will do
                known.extend(words())
        low = text.lower()
        hits = [word for word in known if word.lower().startswith(low)]
        return hits[state] if state < len(hits) else None

    return complete
