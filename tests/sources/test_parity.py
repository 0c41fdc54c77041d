"""One run through every file format gives the same rows, to the bit (as floats of 32 bits where the format holds those)."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import tracker_files as files

from flows.sources.catalogue import open_sources
from flows.stages.attempts import Tracker, assign

# a run that goes back once, with values that few formats like
STEPS = [*range(0, 120), *range(90, 160)]
RUN: files.Rows = [
    (step, {"train/loss": math.nan if at == 33 else math.pi / (1 + at), "train/grad_norm": math.inf if at == 44 else 0.1 * at,
            **({"eval/loss": 1e-320 * at} if at % 10 == 0 else {})})
    for at, step in enumerate(STEPS)
]  # fmt: skip
NAMES = ["train/loss", "train/grad_norm", "eval/loss"]


def as_csv(rows: files.Rows) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["step", *NAMES])
    writer.writerows(
        [[int(step), *(repr(values[name]) if name in values else "" for name in NAMES)] for step, values in rows]
    )
    return buffer.getvalue().encode()


def as_json_lines(rows: files.Rows) -> bytes:
    return "".join(json.dumps({"step": step, **values}) + "\n" for step, values in rows).encode()


def as_parquet(rows: files.Rows) -> bytes:
    buffer = io.BytesIO()
    schema = {"step": pl.Float64(), **{name: pl.Float64() for name in NAMES}}
    pl.DataFrame([{"step": float(step), **values} for step, values in rows], schema=schema).write_parquet(buffer)
    return buffer.getvalue()


FORMATS: dict[str, Callable[[files.Rows], bytes]] = {
    "tensorboard v2": files.event_file,
    "tensorboard v1": lambda rows: files.event_file(rows, doubles=False),
    "wandb": files.wandb_file,
    "trackio": files.trackio_file,
    "csv": as_csv,
    "json lines": as_json_lines,
    "parquet": as_parquet,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_rows_and_the_rewind_of_the_run(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(FORMATS[name](RUN))
    (source,) = open_sources(str(path))
    rows = pl.concat([batch.rows for batch in source.pull(None)])
    kind = np.float32 if name == "tensorboard v1" else np.float64
    wanted = [(float(step), each, float(kind(value))) for step, values in RUN for each, value in values.items()]
    assert repr(rows.select("step", "name", "value").rows()) == repr(wanted)
    tracker = Tracker()
    stored = assign(rows, tracker, final=True)
    assert [(each.first_step, each.valid_until) for each in tracker.attempts] == [(0.0, 90.0), (90.0, None)]
    assert stored.filter(attempt=1, name="train/loss")["step"].to_list() == list(range(90, 160))
