"""Event files, `.wandb` files and trackio's databases as bytes, in the trackers' own messages and tables, row by row.

A row is (step, {name: value}); it was logged `step` seconds after START.
"""

import io
import json
import math
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter
from wandb.proto import wandb_internal_pb2 as wandb_pb

START = 1_750_000_000.0
Rows = Sequence[tuple[float, dict[str, float]]]
DOUBLE, FLOAT = types_pb2.DT_DOUBLE, types_pb2.DT_FLOAT


def event_file(rows: Rows, *, doubles: bool = True, start: float = START) -> bytes:
    """v2 tensors of doubles, or v1 simple values (floats of 32 bits)."""
    events = [event_pb2.Event(wall_time=start, file_version="brain.Event:2")]
    for step, values in rows:
        for name, value in values.items():
            scalar = as_tensor(name, value) if doubles else summary_pb2.Summary.Value(tag=name, simple_value=value)
            events.append(event(int(step), [scalar], start))
    return event_records([each.SerializeToString() for each in events])


def event(step: int, values: Sequence[Any], start: float = START) -> event_pb2.Event:
    return event_pb2.Event(wall_time=start + step, step=step, summary=summary_pb2.Summary(value=values))


def as_tensor(name: str, value: float, plugin: str = "scalars") -> Any:
    tensor = tensor_pb2.TensorProto(dtype=DOUBLE, double_val=[value])
    tensor.tensor_shape.SetInParent()
    metadata = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin))
    return summary_pb2.Summary.Value(tag=name, tensor=tensor, metadata=metadata)


def event_records(payloads: Sequence[bytes]) -> bytes:
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for payload in payloads:
        writer.write(payload)
    return buffer.getvalue()


def wandb_file(rows: Rows, *, run: str = "abc", start: float = START) -> bytes:
    """Header, run record and history as wandb-core 0.31 writes them."""
    records = [wandb_run(run, start)]
    for step, values in rows:
        own = {"_step": int(step), "_timestamp": start + step, "_runtime": step}
        records.append(wandb_history(int(step), {**values, **own}))
    return wandb_log([record.SerializeToString() for record in records])


def wandb_run(run: str, start: float = START, **fields: Any) -> wandb_pb.Record:
    record = wandb_pb.Record(run=wandb_pb.RunRecord(run_id=run, display_name=f"run {run}", project="p", **fields))
    record.run.start_time.seconds = int(start)
    return record


def wandb_history(step: int, values: dict[str, Any]) -> wandb_pb.Record:
    items = [
        wandb_pb.HistoryItem(nested_key=name.split("."), value_json=json.dumps(value)) for name, value in values.items()
    ]
    return wandb_pb.Record(history=wandb_pb.HistoryRecord(item=items, step=wandb_pb.HistoryStep(num=step)))


def wandb_stats(at: float, values: dict[str, float]) -> wandb_pb.Record:
    items = [wandb_pb.StatsItem(key=name, value_json=json.dumps(value)) for name, value in values.items()]
    record = wandb_pb.Record(stats=wandb_pb.StatsRecord(item=items))
    record.stats.timestamp.seconds, record.stats.timestamp.nanos = int(at), int(math.modf(at)[0] * 1e9)
    return record


def wandb_log(payloads: Sequence[bytes]) -> bytes:
    """LevelDB's log format with blocks of 32 kB."""
    out = bytearray(b":W&B\xe1\xbe\x00")
    for payload in payloads:
        first, rest = True, payload
        while first or rest:
            room = 32_768 - len(out) % 32_768
            if room < 7:
                out += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if not rest else 2) if first else (4 if not rest else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(out)


def trackio_file(rows: Rows, *, run: str = "abc", start: float = START) -> bytes:
    """The metrics table of trackio 0.43, whole and without a log beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.db"
        connection = sqlite3.connect(path)
        connection.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, "
            "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
        )
        texts = {math.inf: "Infinity", -math.inf: "-Infinity"}
        for step, values in rows:
            at = datetime.fromtimestamp(start + step, UTC).isoformat()
            said = {name: texts.get(value, "NaN" if math.isnan(value) else value) for name, value in values.items()}
            connection.execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
                (run, at, f"run {run}", int(step), json.dumps(said)),
            )
        connection.commit()
        connection.close()
        return path.read_bytes()
