"""The ladder: rungs out of a store, expectations for a larger run, predictions beside results."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detectors import ladder_fit
from detectors.ladder_rungs import Line, Rung
from detectors.series import Array
from flows.errors import BadConfig
from flows.records import Expected
from flows.sections import LadderSection, PlanSection, RungSection, SizeSection
from flows.stages.planned import plan_of
from flows.store import Store

LADDER, PREDICTION = "ladder", "prediction"
LAST = 0.05  # of the schedule: its mean is the final loss
BODY = {"metrics", "at", "per_step", "parameters", "rungs", "not_expected", "refused"}
METRIC = {"role", "base", "rungs", "centre", "sd", "level_sd", "shape_sd", "noise", "censored_from"}
ROLES = (*ladder_fit.CURVES, *ladder_fit.LAWS, "learning_rate")


def per_step(size: SizeSection, ladder: LadderSection, large: SizeSection, name: str) -> float:
    """The share of the schedule of the large run that a step of a run stands for. Raises BadConfig where it is not known."""
    if ladder.align == "schedule":
        if size.steps is None:
            raise BadConfig(f"{name}: steps is missing; a ladder needs the number of steps that were planned.")
        return 1 / size.steps
    if size.tokens_per_step is None or large.tokens_per_step is None or large.steps is None:
        raise BadConfig(f"{name}: align = 'tokens_per_parameter' needs tokens_per_step, and steps of the large run.")
    return (
        size.tokens_per_step / size.active_parameters / (large.tokens_per_step * large.steps / large.active_parameters)
    )


def read_rung(store: Store, run: str, section: RungSection, ladder: LadderSection, large: SizeSection) -> Rung:
    """A run of the store as a rung: the metrics of ROLES as the run stands."""
    share = per_step(section, ladder, large, f"rung {section.name}")
    lines: dict[str, Line] = {}
    for row in store.metrics(run).iter_rows(named=True):
        if row["role"] in ROLES and (not row["group_name"] or row["role"] == "param_norm"):
            found = store.history(run, row["name"]).drop_nulls("value")
            lines[row["name"]] = Line(row["role"], found["step"].to_numpy() * share, found["value"].to_numpy())
    return Rung(section.name, section.active_parameters, lines, section.settings, _tokens(section, ladder))


def _tokens(size: SizeSection, ladder: LadderSection) -> float | None:
    """Those of the whole schedule; on an axis of tokens per parameter they go with the parameters for all runs."""
    if ladder.align != "schedule" or size.tokens_per_step is None or size.steps is None:
        return None
    return size.tokens_per_step * size.steps


def fit(
    rungs: Sequence[Rung], large: SizeSection, ladder: LadderSection, plan: PlanSection | None, name: str
) -> dict[str, Any]:
    """The expectations for a large run. Raises BadConfig for rungs that are one run, or that say nothing."""
    _distinct(rungs)
    share = per_step(large, ladder, large, f"run {name}")
    rate = None
    if plan is not None and (planned := plan_of(plan).rate) is not None:
        at: Array = np.linspace(0, 1, 201)
        rate = Line("learning_rate", at, planned.at(at / share) / planned.peak)
    try:
        body = ladder_fit.fit(rungs, large.active_parameters, large.settings, rate, _tokens(large, ladder))
    except ValueError as error:
        raise BadConfig(f"run {name}: nothing can be expected from this ladder: {error}.") from None
    tokens = large.tokens_per_step / share if large.tokens_per_step is not None else None
    return {**body, "align": ladder.align, "per_step": share, "tokens": tokens}


def is_usable(body: object) -> bool:
    """Whether these are expectations that this version made, or one that is like it."""
    if not isinstance(body, dict) or body.get("version") != ladder_fit.VERSION or not body.keys() >= BODY:
        return False
    return all(isinstance(one, dict) and one.keys() >= METRIC for one in body["metrics"].values())


def on_record(store: Store, run: str) -> list[Mapping[str, Any]]:
    """What ladders predicted of a run, oldest first."""
    return [each.body for each in store.expectations(run) if each.name == LADDER and is_usable(each.body)]


def _distinct(rungs: Sequence[Rung]) -> None:
    """Two rungs that are one run count as one too often. (A crashed run that was started anew by mistake looks like that.)"""
    seen: dict[bytes, str] = {}
    for rung in rungs:
        line = next((line for _, line in sorted(rung.lines.items()) if line.role == "loss"), None)
        if line is None:
            continue
        before = seen.setdefault(line.value[:64].tobytes(), rung.name)
        if before != rung.name:
            raise BadConfig(f"rungs {before} and {rung.name} begin with the same losses: they are one run; keep one.")


@dataclass(frozen=True)
class Prediction:
    """What was predicted of a metric at a step, when, with its 90 % band, and what came of it (None: not there yet)."""

    metric: str
    recorded_at: float
    version: str
    source: str  # ladder, or who made it
    step: float
    value: float
    low: float
    high: float
    result: float | None
    note: str = ""

    @property
    def inside(self) -> bool | None:
        """Whether the result lies in the band."""
        return None if self.result is None else self.low <= self.result <= self.high


def predictions(store: Store, run: str) -> list[Prediction]:
    """Every prediction of a run beside its result, in the order in which they were recorded."""
    return [found for each in store.expectations(run) for found in _predicted(store, each)]


def _predicted(store: Store, each: Expected) -> list[Prediction]:
    body = each.body
    if each.name == PREDICTION:
        known = store.history(each.run, body["metric"]).drop_nulls("value")
        at = known.filter(known["step"] >= body["step"])
        result = float(at["value"][0]) if len(at) else None
        return [
            Prediction(
                body["metric"], each.recorded_at, each.version, body["who"], body["step"], body["value"], body["low"],
                body["high"], result, body["note"],
            )
        ]  # fmt: skip
    out = []
    for metric, one in body["metrics"].items() if each.name == LADDER else ():
        if "final" in one:
            final, end = one["final"], 1 / body["per_step"]
            result = _final(store, each.run, metric, end)
            out.append(
                Prediction(
                    metric, each.recorded_at, each.version, LADDER, end, final["value"], final["low"], final["high"],
                    result,
                )
            )  # fmt: skip
    return out


def _final(store: Store, run: str, metric: str, end: float) -> float | None:
    """The mean (of the logarithm) of the last 5 % of the schedule; None before the run has come to its end."""
    known = store.history(run, metric).drop_nulls("value")
    step, value = known["step"].to_numpy(), known["value"].to_numpy()
    last = value[(step >= (1 - LAST) * end) & (step <= end) & (value > 0)]
    return math.exp(float(np.log(last).mean())) if len(last) and step[-1] >= 0.98 * end else None
