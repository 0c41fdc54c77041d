"""What people do to incidents from the command line: each is one line of the log, written in one short transaction."""

import getpass
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.errors import BadConfig
from flows.records import Operation
from flows.verbs.place import store_path

if TYPE_CHECKING:
    from flows.store import Store

StoreOption = Annotated[Path | None, typer.Option(envvar="WATCHKEEPER_STORE", help="the DuckDB file")]
IdArgument = Annotated[str, typer.Argument(help="its id, or the first letters of it")]
WhoOption = Annotated[str | None, typer.Option(help="who does it; your login name if it is left out")]
WhyOption = Annotated[str, typer.Option(help="why, for those who read the record later")]
ForOption = Annotated[str | None, typer.Option("--for", help="how long, such as 30m, 4h or 2d")]
LONGEST_SECONDS = 366 * 86_400.0
UntilStepOption = Annotated[float | None, typer.Option(help="until the run has come to this step")]


def ack(incident_id: IdArgument, why: WhyOption = "", who: WhoOption = None, store: StoreOption = None) -> None:
    """Say that you have it in hand: no reminders; if it grows worse, you are told.

    Example: watchkeeper incidents ack 3f2a --why "looking at the data loader"
    """
    _do(opened(store), incident_id, Operation("", "ack", who_is(who), time.time(), why))


def snooze(
    incident_id: IdArgument,
    duration: ForOption = None,
    until_step: UntilStepOption = None,
    why: WhyOption = "",
    who: WhoOption = None,
    store: StoreOption = None,
) -> None:
    """Hear nothing of it for a while, unless it grows worse; what still goes on then is told.

    Example: watchkeeper incidents snooze 3f2a --for 4h
    """
    done = Operation("", "snooze", who_is(who), time.time(), why)
    end = until(duration, until_step, "snooze")
    _do(opened(store), incident_id, replace(done, until_time=end, until_step=until_step))


def resolve(incident_id: IdArgument, why: WhyOption = "", who: WhoOption = None, store: StoreOption = None) -> None:
    """Close it by hand; something new of it opens it again.

    Example: watchkeeper incidents resolve 3f2a --why "rolled back to 41,000"
    """
    kept = opened(store)
    row = incident_row(kept, incident_id)
    if row["status"] == "resolved":
        raise BadConfig(
            f"incident {row['incident_id']}: it is resolved already, since step {row['resolved_step']:,.15g}."
        )
    _do(kept, incident_id, Operation("", "resolve", who_is(who), time.time(), why))


def note(
    incident_id: IdArgument,
    text: Annotated[str, typer.Argument(help="what others should know")],
    who: WhoOption = None,
    store: StoreOption = None,
) -> None:
    """Write something down with it.

    Example: watchkeeper incidents note 3f2a "node 17 was swapped"
    """
    if not text.strip():
        raise BadConfig("note: there is nothing in it; give the text in quotes behind the id.")
    _do(opened(store), incident_id, Operation("", "note", who_is(who), time.time(), text))


def feedback(
    incident_id: IdArgument,
    verdict: Annotated[str, typer.Argument(help="right, wrong, or known (real, and expected)")],
    why: WhyOption = "",
    who: WhoOption = None,
    store: StoreOption = None,
) -> None:
    """Say whether it was right to tell you. It silences nothing; of a known one the watch learns no baseline.

    Example: watchkeeper incidents feedback 3f2a wrong --why "the eval runs on another node"
    """
    from flows.incidents.people import FEEDBACK

    if verdict not in FEEDBACK:
        raise BadConfig(f"feedback {verdict!r}: it is {', '.join(FEEDBACK)}.")
    _do(opened(store), incident_id, Operation("", verdict, who_is(who), time.time(), why))


def opened(store: Path | None) -> "Store":
    """The store that is meant; raises BadConfig where there is none."""
    from flows.store import open_store

    return open_store(str(store_path(store)), clock=time.time, must_exist=True)


def incident_row(kept: "Store", incident_id: str) -> dict[str, Any]:
    """The one incident whose id begins so; raises BadConfig for none or several."""
    rows = [row for row in kept.incidents() if row["incident_id"].startswith(incident_id)]
    if len(rows) != 1:
        what = "no incident has" if not rows else f"{len(rows)} incidents have"
        raise BadConfig(
            f"{incident_id!r}: {what} an id that begins so. `watchkeeper incidents list --status all` shows them."
        )
    return rows[0]


def _do(kept: "Store", incident_id: str, done: Operation) -> None:
    from flows.messages.document import operation_doc
    from flows.messages.facts import operation
    from flows.stages.act import act

    row = incident_row(kept, incident_id)
    print(f"{row['incident_id']}: {operation(operation_doc(act(kept, row, done)))}")  # noqa: T201


def who_is(given: str | None) -> str:
    """The name given, else that of the login; raises BadConfig where there is none."""
    if given and given.strip():
        return given.strip()
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        raise BadConfig("who does this? The system knows no name for this user; give it as --who NAME.") from None


def until(duration: str | None, until_step: float | None, verb: str) -> float | None:
    """Unix seconds; raises BadConfig where neither end is given, or the duration is none."""
    from pydantic import TypeAdapter, ValidationError

    from flows.values import Seconds

    if duration is None:
        if until_step is None:
            raise BadConfig(f"{verb}: for how long? Give --for 4h or --until-step N.")
        return None
    try:
        seconds = TypeAdapter(Seconds).validate_python(duration)
    except ValidationError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_SECONDS:
        raise BadConfig(f"--for {duration!r}: it is a duration up to a year, such as 30m, 4h or 2d.")
    return time.time() + seconds
