"""The scheduled flow: `python -m flows.runner CONFIG` registers it with the Prefect server and runs it when it is due.

It runs as a child of `watchkeeper serve`, which sets PREFECT_API_URL and starts it again should it end.
"""

import asyncio
import hashlib
import socket
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from flows.telemetry import off

off()

from prefect.client.orchestration import get_client  # noqa: E402
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate  # noqa: E402
from prefect.client.schemas.filters import (  # noqa: E402
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, StateType  # noqa: E402
from prefect.exceptions import TerminationSignal  # noqa: E402
from prefect.runner import Runner  # noqa: E402
from prefect.schedules import Cron, Interval, Schedule  # noqa: E402
from prefect.states import Crashed  # noqa: E402
from prefect.types.entrypoint import EntrypointType  # noqa: E402

from flows.config import Config, load_config  # noqa: E402
from flows.watch import watch  # noqa: E402
from flows.wiring import utc_now  # noqa: E402

ALIVE = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


def deployment_name(config: Config) -> str:
    """The folder of the configuration, and a mark that tells it from another machine's folder of the same name."""
    mark = hashlib.sha256(f"{socket.gethostname()}:{config.path}".encode()).hexdigest()[:6]
    return f"{config.path.parent.name or 'root'}-{mark}"


def schedule_of(config: Config, now: datetime) -> Schedule:
    """Every interval from now on, or by cron."""
    if config.watch.cron is not None:
        return Cron(config.watch.cron)
    return Interval(config.watch.every, anchor_date=now + timedelta(seconds=2))


def release(name: str) -> None:
    """Give back the slot that a killed server or runner of ours left taken: else no pass starts for five minutes.

    Only one `serve` works on a store, so whatever is said to be running belongs to a process that is gone.
    """
    with get_client(sync_client=True) as client:
        which = DeploymentFilter(name=DeploymentFilterName(any_=[name]))
        state = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(ALIVE)))
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=state), deployment_filter=which):
            client.set_flow_run_state(run.id, Crashed(message="its process was killed"), force=True)
        for deployment in client.read_deployments(deployment_filter=which):
            limit: Any = deployment.global_concurrency_limit
            if limit is not None and limit.active_slots:
                client.update_global_concurrency_limit(limit.name, GlobalConcurrencyLimitUpdate(active_slots=0))


def main() -> None:
    """Serve until told to stop. A pass that comes due while one is at work is dropped, not queued."""
    config = load_config(sys.argv[1])
    name = deployment_name(config)
    release(name)
    # by default a pass is prepared 10 s ahead, and dropped if the last one still runs by then
    runner = Runner(name=name, prefetch_seconds=1)
    runner.add_flow(
        watch,
        name=name,
        schedule=schedule_of(config, utc_now()),
        parameters={"config": str(config.path)},
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


if __name__ == "__main__":
    main()
