"""The command line: parse, call a stage, print. Each verb lives in flows/verbs; heavy libraries load inside the verbs."""

import sys

import typer

from flows.errors import WatchkeeperError
from flows.verbs import check, demo, doctor, events, incidents, init, ladder, record, replay, serve, sql, upkeep, watch

app = typer.Typer(
    name="watchkeeper",
    help="Stands watch over training runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("check")(check.check)
app.command("init")(init.init)
app.command("doctor")(doctor.doctor)
app.add_typer(events.app, name="events")
app.command("watch")(watch.watch)
app.command("serve")(serve.serve)
app.command("report")(record.report)
app.command("sql")(sql.sql)
app.command("upkeep")(upkeep.upkeep)
app.command("replay")(replay.replay)
app.command("demo")(demo.demo)
app.add_typer(incidents.app, name="incidents")
app.add_typer(ladder.app, name="ladder")


def main() -> None:
    """Entry point: what a user must know is one line on standard error, and exit status 2."""
    try:
        app()
    except WatchkeeperError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
