"""The endpoint as a process of its own, which `watchkeeper serve` starts: python -m flows.phone CONFIG."""

import sys
import time

from flows.config import Config, load_config
from flows.errors import BadConfig, SecretUnavailable, WatchkeeperError
from flows.phone.desk import Desk
from flows.phone.server import PhoneServer
from flows.phoning import PhoneSection
from flows.wiring import open_configured_store

PAUSE_SECONDS = 5.0  # before what keeps a secret is asked again


def desk_of(config: Config, phone: PhoneSection) -> Desk:
    """The desk that a configuration describes."""
    services = ("pagerduty", "opsgenie")
    secrets = {name: phone.text_of(f"{name}_secret") for name in services}
    return Desk(
        lambda: open_configured_store(config),
        time.time,
        phone.text_of("secret"),
        {name: secret for name, secret in secrets.items() if secret},
        {name: [each.name for each in config.channel if each.service == name] for name in services},
    )


def _desk_in_time(config: Config, phone: PhoneSection) -> Desk:
    """The same, however much later than this process the Prefect server comes up that keeps a secret."""
    while True:
        try:
            return desk_of(config, phone)
        except SecretUnavailable as error:
            print(f"watchkeeper: {error}", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(PAUSE_SECONDS)


def main(path: str) -> None:
    """Answer until ended. Raises BadConfig where there is nothing to answer, or the address is taken."""
    config = load_config(path)
    phone = config.phone
    if phone is None:
        raise BadConfig(f"{config.path}: there is no [phone] in it")
    desk = _desk_in_time(config, phone)
    try:
        server = PhoneServer(phone.address, desk)
    except OSError as error:
        raise BadConfig(f"phone.listen {phone.listen}: {error.strerror}; give another port") from None
    server.serve_forever()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except WatchkeeperError as error:
        sys.exit(f"watchkeeper: {error}")
