"""How fast each source reads a run, beside the reader that people use for its format: samples per second of processor time.

    python tests/bench/readers.py [--steps 20_000]

One run of 20 metrics in every format. Sources are pulled to their last row; the usual readers build what they build (a
table in memory, a dictionary a row). The better of three turns each, in turns, by processor time: other
work on the machine makes both slower alike.
"""

import argparse
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple

import numpy as np
import pandas as pd
from tbparse import SummaryReader
from wandb.proto import wandb_internal_pb2

from flows.sources.catalogue import open_sources

sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))
import tracker_files

METRICS = 20


class Least(NamedTuple):
    """What is asked for: samples a second, and how many times the usual reader's."""

    samples: float
    ratio: float


# pandas gives a table as wide as the file, ours is a row a sample with its name and time
ASKED = {
    "tfevents": Least(200_000, 1.0),
    "wandb": Least(200_000, 1.0),
    "csv": Least(500_000, 0.25),
    "jsonl": Least(200_000, 1.0),
}


@dataclass(frozen=True)
class Reading:
    """Samples a second of our reader and of the usual one."""

    what: str
    beside: str
    ours: float
    usual: float


def made(steps: int) -> list[tuple[float, dict[str, float]]]:
    """Rows of noisy metrics."""
    values = np.random.default_rng(0).standard_normal((steps, METRICS))
    names = [f"train/metric_{at}" for at in range(METRICS)]
    return [(step, dict(zip(names, map(float, row), strict=True))) for step, row in enumerate(values)]


def scan_wandb(path: Path) -> int:
    """The scan of wandb's own `DataStore` (sdk/internal/datastore.py up to 0.25), with its messages and its checks."""
    return sum(len(row) for row in _wandb_rows(path))


def _wandb_rows(path: Path) -> Iterator[dict[str, float]]:
    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        check, size, kind = unpack_from("<IHB", data, at)
        body = data[at + 7 : at + 7 + size]
        if zlib.crc32(body, zlib.crc32(bytes([kind]))) != check:
            raise SystemExit(f"{path}: wrong checksum")
        at += 7 + size
        parts += body
        if kind in {1, 4}:
            record = wandb_internal_pb2.Record.FromString(parts)
            parts = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def readings(folder: Path, steps: int) -> list[Reading]:
    """All formats, files written into the folder."""
    rows = made(steps)
    wide = pd.DataFrame([{"step": step, **values} for step, values in rows])
    files = {name: folder / f"run.{name}" for name in ("tfevents", "wandb", "csv", "jsonl")}
    files["tfevents"].write_bytes(tracker_files.event_file(rows, doubles=False))
    files["wandb"].write_bytes(tracker_files.wandb_file(rows))
    wide.to_csv(files["csv"], index=False)
    wide.to_json(files["jsonl"], orient="records", lines=True, double_precision=15)
    usual: dict[str, tuple[str, Callable[[Path], object]]] = {
        "tfevents": ("tbparse", lambda path: SummaryReader(str(path)).scalars),
        "wandb": ("wandb's own scan", scan_wandb),
        "csv": ("pandas.read_csv", pd.read_csv),
        "jsonl": ("pandas.read_json", lambda path: pd.read_json(path, lines=True)),
    }
    samples = steps * METRICS
    out = []
    for name, (beside, read) in usual.items():
        ours, theirs = [], []
        for _ in range(3):
            ours.append(_seconds(partial(_pulled, samples=samples), files[name]))
            theirs.append(_seconds(read, files[name]))
        out.append(Reading(name, beside, samples / min(ours), samples / min(theirs)))
    return out


def _pulled(path: Path, samples: int) -> None:
    (source,) = open_sources(str(path))
    found = sum(len(batch.rows) for batch in source.pull(None))
    if found != samples:
        raise SystemExit(f"{path}: {found:,} samples instead of {samples:,}")


def _seconds(work: Callable[[Path], object], path: Path) -> float:
    began = time.process_time()
    work(path)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=lambda text: int(text.replace("_", "")), default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for each in readings(Path(name), asked.steps):
            beside = f"{each.ours / each.usual:.2f} times {each.beside} ({each.usual:,.0f})"
            print(f"{each.what}: {each.ours:,.0f} samples/s, {beside}")


if __name__ == "__main__":
    main()
