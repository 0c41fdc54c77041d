"""The flow: one pass over every run, each stage of each run a task (a metric never is one: a task costs 20 ms).

The flow run fails when no run at all could be watched; otherwise it completes, its message names the runs that failed,
and their task runs are marked failed. A pass that finds another one at work on every run completes as `Skipped`.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from flows.telemetry import off

off()

from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402
from prefect.events import emit_event  # noqa: E402
from prefect.states import Completed, Failed  # noqa: E402
from prefect.tasks import exponential_backoff  # noqa: E402

from flows.config import load_config  # noqa: E402
from flows.errors import TransientError, WatchkeeperError  # noqa: E402
from flows.passes import alerts_of  # noqa: E402
from flows.wiring import one_pass  # noqa: E402

T = TypeVar("T")


@task(
    retries=2,
    retry_delay_seconds=exponential_backoff(2),
    retry_condition_fn=lambda task, run, state: isinstance(state.result(raise_on_failure=False), TransientError),
    cache_policy=NO_CACHE,
)
def stage(work: Callable[[], T]) -> T:
    return work()


def _in_one_line(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], WatchkeeperError):
        record.exc_info = None  # its text says where it comes from; a trace of ours would not help anybody
    return True


@flow(name="watch", validate_parameters=False)
def watch(config: str | None = None) -> State[dict[str, Any]]:
    """Watch every run of the configuration once."""
    logging.getLogger("prefect.task_runs").addFilter(_in_one_line)
    report = one_pass(load_config(config), call=lambda name, work: stage.with_options(task_run_name=name)(work))
    for alert in alerts_of(report):
        emit_event(**alert)
    create_markdown_artifact(report.markdown(), key="watch-pass", description=report.summary())
    create_table_artifact(report.rows(), key="watch-runs")
    if report.record.url:
        create_link_artifact(report.record.url, link_text="Operating record", key="operating-record")
    get_run_logger().info(report.summary())
    if report.blind:
        return Failed(data=report.told(), message=report.summary())
    return Completed(
        data=report.told(), message=report.summary(), name="Skipped" if report.all_skipped else "Completed"
    )
