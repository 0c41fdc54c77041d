"""`watchkeeper watch`: passes in the foreground, by the Prefect flow."""

import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from flows.config import Config, load_config
from flows.errors import BadConfig, WatchkeeperError
from flows.serving import Server, StartFailed, configured_api, home_beside, meet, new_server
from flows.telemetry import off

ConfigOption = Annotated[
    Path | None, typer.Option("--config", envvar="WATCHKEEPER_CONFIG", help="the configuration (watchkeeper.toml here)")
]
DONE, FAILED, SKIPPED = 0, 1, 3


class Stop(BaseException):
    """We were asked to end; like KeyboardInterrupt no Exception, or a stage would count it as its own failure."""


def stop(number: int, frame: FrameType | None) -> None:
    """A signal handler: raises Stop."""
    raise Stop(signal.Signals(number).name)


def say(text: str) -> None:
    """One line of progress on standard error."""
    print(f"watchkeeper: {text}", file=sys.stderr, flush=True)  # noqa: T201


def watch(
    once: Annotated[bool, typer.Option("--once", help="one pass, then end")] = False, config: ConfigOption = None
) -> None:
    """Pull, judge, alert for every run of the configuration, again and again.

    Exit status of --once: 0 every run was watched, 1 something failed, 2 the configuration was bad, 3 another pass was
    at work on every run and this one was dropped. Without --once it ends with 0 when it is stopped.

    Example: watchkeeper watch --once
    """
    loaded = load_config(config)
    if not once and loaded.watch.cron is not None:
        raise BadConfig(
            f"{loaded.path}: watch.cron: `watch` loops by interval; set that, or use `watchkeeper serve`, "
            "or let cron call `watchkeeper watch --once`."
        )
    off()
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    server = _own_server(home_beside(loaded.store.url)) if configured_api() is None else None
    previous = signal.signal(signal.SIGTERM, stop)
    status = DONE
    try:
        if once:
            status = _pass(loaded, server)
        else:
            _loop(loaded, server)
    except (KeyboardInterrupt, Stop):
        say("stopped")
        status = 130 if once else DONE
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not leave the server behind
        if server is not None:
            server.stop()
        signal.signal(signal.SIGTERM, previous)
    raise typer.Exit(status)


def _own_server(home: Path) -> Server | None:
    """A server to start; None where one runs on this home already, which is then used."""
    return None if meet(home) else new_server(home)


def _loop(config: Config, server: Server | None) -> None:
    """Passes at the interval until stopped; one that takes longer is followed by the next at once."""
    while True:
        began = time.monotonic()
        try:
            _pass(config, server)
        except WatchkeeperError as error:
            say(f"this pass failed, the next one tries again: {error}")  # the file is read anew for each pass
        time.sleep(max(0.0, began + config.watch.interval - time.monotonic()))


def _pass(config: Config, server: Server | None) -> int:
    """One pass as a flow run, or without Prefect where that is out of order: the watch must not depend on it."""
    try:
        if server is not None and not server.alive():
            server.start()
            server.await_health()
            os.environ.update(server.environment())
        told = _flow_run(config)
    except WatchkeeperError as error:
        if not isinstance(error, StartFailed):
            raise
        told = _plain(config, str(error))
    except Exception as error:  # noqa: BLE001  # whatever Prefect raises when its server is gone or refuses us
        told = _plain(config, f"the Prefect server cannot be used ({type(error).__name__})")
    say(told["summary"])
    return SKIPPED if told["skipped"] else DONE if told["good"] else FAILED


def _flow_run(config: Config) -> dict[str, Any]:
    from flows.watch import watch as flow

    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_no_crash_when_stopped)
    state: Any = flow(str(config.path), return_state=True)
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):
        raise result
    found: dict[str, Any] = result
    return found


def _no_crash_when_stopped(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Crash detected!")


def _plain(config: Config, why: str) -> dict[str, Any]:
    from flows.wiring import one_pass

    say(f"{why}; this pass goes without it")
    report = one_pass(load_config(config.path))
    return report.told()
