"""What a ladder expects of a run's metrics, on their own scale: the bands that charts show."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detectors.ladder_fit import FIRST, as_logged, base_of
from detectors.ladder_rungs import START, Z90
from detectors.noise import BLOCK
from flows.record.curves import Predicted
from flows.stages.departed import spans
from flows.store import Store

Body = Mapping[str, Any]


def predicted(store: Store, run: str, bodies: Sequence[Body], metric: Mapping[str, Any]) -> tuple[Predicted, ...]:
    """The band of a metric (its row of `store.metrics`), a part for each version, over the steps that this version judges."""
    out = []
    for body, begin, end in spans(bodies):
        one = body["metrics"].get(metric["name"])
        if one is None:
            continue
        base = _base(store, run, metric, {**one, **body}) if one["role"] == "param_norm" else float(one["base"])
        part = _part(one, np.array(body["at"]), float(body["per_step"]), base, begin, end)
        out += [part] if len(part.step) > 1 else []
    return tuple(out)


def _part(one: Body, centres: Any, per_step: float, base: float, begin: float, end: float) -> Predicted:
    first, last = max(START, begin * per_step), min(1.0, end * per_step)
    at = np.array([first, *centres[(centres > first) & (centres < last)], last]) if first < last else np.empty(0)
    centre, sd = (np.interp(at, centres, one[key]) for key in ("centre", "sd"))
    half = Z90 * np.hypot(sd, one["noise"])
    # of an entropy the deficit is judged: its low edge is the high one of the metric
    edges = [as_logged(one["role"], each, base) for each in (centre - half, centre + half)]
    return Predicted(
        at / per_step,
        np.minimum(*edges),
        as_logged(one["role"], centre, base),
        np.maximum(*edges),
        np.inf if one["censored_from"] is None else one["censored_from"] / per_step,
        BLOCK if one["role"] == "token_drop" else 1,
    )


def _base(store: Store, run: str, metric: Mapping[str, Any], expected: Body) -> float:
    """Where a norm began, which its ladder is in parts of."""
    first, last = metric["first_step"], metric["last_step"]
    cadence = (last - first) / max(metric["samples"] - 1, 1)
    rows = store.stands(run, [metric["name"]], first, first + 4 * FIRST * cadence)
    return base_of(rows["value"].fill_null(float("nan")).to_numpy(), first * expected["per_step"], expected)
