"""What a person does to an incident, whatever the way it came: one line of the log with what was known then."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flows.errors import BadConfig
from flows.records import Operation
from flows.stages.document import last_step
from flows.store import Store


def act(store: Store, incident: Mapping[str, Any], done: Operation) -> Operation:
    """Write it down for a row of `incidents`; returns the whole line. Raises BadConfig for an end that is past."""
    run, name = incident["run"], incident["incident_id"]
    step = last_step(store, run)
    if done.until_step is not None and done.until_step <= step:
        raise BadConfig(f"--until-step {done.until_step:,.15g}: run {run} is at step {step:,.15g} already.")
    if done.kind == "known":  # what it did up to here is no baseline any more
        end = incident["resolved_step"]
        done = replace(done, until_step=step if end is None else min(step, end))
    known = len(store.findings(run, name))
    whole = replace(done, run=run, incident_id=name, step=step, severity=incident["severity"], findings=known)
    store.operate(whole)
    return whole
