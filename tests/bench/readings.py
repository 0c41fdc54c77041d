"""What the log of a case holds: the clock and the exposure of the scores."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from cases import Case
from numpy.typing import NDArray

from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of


@dataclass(frozen=True)
class Readings:
    """`rows` as a source gives them, the log's samples and steps, and its usual seconds a step (None without a clock)."""

    rows: pl.DataFrame
    all_steps: NDArray[np.float64]  # sorted, without repetitions
    samples: int  # of metrics whose role is known: counters and progress bars would only dilute the rates
    seconds_per_step: float | None

    def samples_from(self, metric: str, after: float, upto: float) -> int:
        """Samples of a metric (steps, where it is unknown) with after < step <= upto; negative when it runs back."""
        steps = np.unique(self.rows.filter(pl.col("name") == metric)["step"].to_numpy())
        steps = steps if len(steps) else self.all_steps
        return int(np.searchsorted(steps, upto, "right") - np.searchsorted(steps, after, "right"))


def read(case: Case) -> Readings:
    """Read the log once, as the systems do."""
    (source,) = open_sources(str(case.log))
    rows = pl.concat([batch.rows for batch in source.pull(None)])
    known = [name for name in rows["name"].unique() if role_of(name).role != "other"]
    pace = case.seconds_per_step if case.seconds_per_step is not None else _pace(rows)
    samples = int(rows["name"].is_in(known).sum())
    return Readings(rows, np.unique(rows["step"].to_numpy()), samples, pace)


def _pace(rows: pl.DataFrame) -> float | None:
    """Median seconds a step between the samples of the metric that begins the log."""
    clock = rows.filter(pl.col("name") == rows["name"][0]).select("step", pl.col("logged_at").dt.epoch("us") / 1e6)
    step, seconds = (np.diff(clock.drop_nulls()[name].to_numpy()) for name in ("step", "logged_at"))
    pace = seconds[step > 0] / step[step > 0]
    return float(np.median(pace)) if len(pace) else None
