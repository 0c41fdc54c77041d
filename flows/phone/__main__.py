"""The endpoint as a process of its own, which `watchkeeper serve` starts: python -m flows.phone CONFIG."""

import sys
import time

from flows.config import Config, load_config
from flows.errors import BadConfig, WatchkeeperError
from flows.phone.desk import Desk
from flows.phone.server import PhoneServer
from flows.phoning import PhoneSection
from flows.wiring import open_configured_store


def desk_of(config: Config, phone: PhoneSection) -> Desk:
    """The desk that a configuration describes."""
    secrets = {"pagerduty": phone.pagerduty_secret, "opsgenie": phone.opsgenie_secret}
    return Desk(
        lambda: open_configured_store(config),
        time.time,
        phone.secret.get_secret_value(),
        {name: secret.get_secret_value() for name, secret in secrets.items() if secret is not None},
        {name: [each.name for each in config.channel if each.service == name] for name in secrets},
    )


def main(path: str) -> None:
    """Answer until ended. Raises BadConfig where there is nothing to answer, or the address is taken."""
    config = load_config(path)
    if config.phone is None:
        raise BadConfig(f"{config.path}: there is no [phone] in it")
    try:
        server = PhoneServer(config.phone.address, desk_of(config, config.phone))
    except OSError as error:
        raise BadConfig(f"phone.listen {config.phone.listen}: {error.strerror}; give another port") from None
    server.serve_forever()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except WatchkeeperError as error:
        sys.exit(f"watchkeeper: {error}")
