"""Nothing that watchkeeper uses may call home: Prefect's analytics and those of the trackers' SDKs are off."""

import os

OFF = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
}


def off() -> None:
    """Call it before any SDK is imported; child processes inherit it."""
    os.environ.update(OFF)
