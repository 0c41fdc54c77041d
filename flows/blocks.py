"""Secrets that a block of Prefect keeps: asked of its server when one is needed, and not before.

Prefect takes a second to load, so it is loaded here and only then.
"""

from flows.errors import BadConfig, SecretUnavailable
from flows.telemetry import off

KIND = "secret"  # the one type of block whose value is text that nobody is shown


def secret_of(name: str) -> str:
    """The text in the Secret block `name`.

    Raises BadConfig where the server has no such block or no text in it, SecretUnavailable where no server says.
    """
    off()
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import get_current_settings

    block = f"block:{KIND}/{name}"
    if get_current_settings().api.url is None:
        raise SecretUnavailable(
            f"{block}: no Prefect server is known that could be asked; set PREFECT_API_URL, or let `watchkeeper serve` run"
        )
    try:
        with get_client(sync_client=True) as client:
            found = client.read_block_document_by_name(name, KIND, include_secrets=True).data.get("value")
    except ObjectNotFound:
        raise BadConfig(
            f"{block}: the Prefect server has no Secret block of this name; make it on the page Blocks of its web "
            "interface, or mend the name"
        ) from None
    except Exception as error:  # noqa: BLE001  # whatever Prefect raises when its server is gone or refuses us
        status = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        raise SecretUnavailable(
            f"{block}: the Prefect server does not give it ({status}); see that it runs and takes PREFECT_API_KEY"
        ) from None
    if not isinstance(found, str) or not found.strip():
        raise BadConfig(f"{block}: there is no text in it; put the secret there on the page Blocks of Prefect")
    return found.strip()
