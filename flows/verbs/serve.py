"""`watchkeeper serve`: the flow on its schedule, and whatever it needs to run, kept running."""

import os
import signal
import sys
import time
from subprocess import Popen

from flows.config import Config, load_config
from flows.serving import Server, StartFailed, configured_api, end, home_beside, new_server, only_one, spawn
from flows.telemetry import off
from flows.verbs.watch import ConfigOption, Stop, say, stop

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0  # a child that lived so long has not failed at its start


def serve(config: ConfigOption = None) -> None:
    """Watch on schedule (`interval` or `cron` in the configuration) until stopped.

    Uses the Prefect server that is configured; without one it starts and supervises its own on loopback. Stop it with
    Ctrl-C or SIGTERM. Exit status: 0 stopped, 2 the configuration was bad or another `serve` is running.

    Example: watchkeeper serve
    """
    loaded = load_config(config)
    with only_one(loaded.store.url, "serve"):
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        supervise(loaded)


def supervise(config: Config) -> None:
    """Keep server and runner alive until Stop; end both whatever happens."""
    off()
    home = home_beside(config.store.url)
    api = configured_api()
    server = new_server(home) if api is None else None
    runner: Popen[bytes] | None = None
    phone: Popen[bytes] | None = None
    due = 0.0  # when a new endpoint for phones may be started
    pause, started = FIRST_PAUSE_SECONDS, 0.0
    try:
        if server is None:
            say(f"uses the Prefect server {api}")
        while True:
            # first, for it needs no server: an acknowledgement need not wait for one
            if config.phone is not None and (phone is None or phone.poll() is not None) and time.monotonic() >= due:
                if phone is not None:
                    say(f"the endpoint for phones ended (status {phone.returncode}, see {home}/phone.log); again")
                phone, due = _child("phone", config, server), time.monotonic() + LONGEST_PAUSE_SECONDS
            if server is not None and not server.alive():
                bring_up(server)
            if runner is None or runner.poll() is not None:
                if runner is not None:
                    say(f"the runner ended (status {runner.returncode}, see {home}/runner.log); again in {pause:.0f} s")
                    time.sleep(pause)
                    steady = time.monotonic() - started > STEADY_SECONDS
                    pause = FIRST_PAUSE_SECONDS if steady else min(2 * pause, LONGEST_PAUSE_SECONDS)
                runner, started = _child("runner", config, server), time.monotonic()
            time.sleep(0.5)
    except Stop as asked:
        say(f"{asked}: stopping")
    finally:
        # a second signal must not leave a child behind
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for child in (runner, phone):
            if child is not None:
                end(child)
        if server is not None:
            server.stop()


def bring_up(server: Server) -> None:
    """Start it and wait, however long an overloaded machine takes. Raises StartFailed for one that ends instead."""
    again = server.process is not None
    server.start()
    healthy = False
    while not healthy:
        try:
            server.await_health()
            healthy = True
        except StartFailed as slow:
            if not server.alive():
                raise
            say(f"{slow}; waiting on")
    say(f"the Prefect server {'is up again' if again else 'is up'}: {server.api.removesuffix('/api')}")


def _child(name: str, config: Config, server: Server | None) -> Popen[bytes]:
    """flows.runner or flows.phone; its words go to a log in the home."""
    home = home_beside(config.store.url)
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{name}.log").open("wb") as log:
        return spawn([sys.executable, "-m", f"flows.{name}", str(config.path)], _environment(server, config), log)


def _environment(server: Server | None, config: Config) -> dict[str, str]:
    # a pass begins up to one poll late: so often that the one after a killed pass begins an interval later, not a fifth more
    poll = max(1, min(5, int(config.watch.interval // 20))) if config.watch.cron is None else 5
    own = server.environment() if server is not None else {}
    return {"PREFECT_RUNNER_POLL_FREQUENCY": str(poll), "PREFECT_LOGGING_LEVEL": "WARNING", **os.environ, **own}
