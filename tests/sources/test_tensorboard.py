"""TensorBoard event files: written by its own writers, damaged, cut anywhere, in folders as people have them."""

import math
import struct
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tracker_files as files
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as reference
from tensorboard.summary import Writer
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from flows.errors import BadInput
from flows.records import Batch
from flows.sources.catalogue import open_sources
from flows.sources.crc32c import crc32c, masked_crc32c
from flows.stages.attempts import Tracker, assign

Row = tuple[float, str, float]
NO_SCALAR = "histogram, image, text or other value that is no scalar"
LOST = "record with a damaged length: the rest of the file cannot be read"


def pull(target: Path, cursor: str | None = None) -> list[Batch]:
    (source,) = open_sources(str(target))
    return list(source.pull(cursor))


def rows_of(batches: list[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()]


def notes_of(batches: list[Batch]) -> dict[str, int]:
    return {what: count for batch in batches for what, count in batch.notes.items()}


def put(folder: Path, name: str, rows: files.Rows, **how: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"events.out.tfevents.{name}").write_bytes(files.event_file(rows, **how))


def loss(steps: range, scale: float = 1.0) -> list[tuple[float, dict[str, float]]]:
    return [(step, {"loss": scale / (1 + step), "lr": 0.5}) for step in steps]


def scalar(tensor: Any, plugin: str = "scalars") -> Any:
    value = files.as_tensor("x", 0.0, plugin)
    value.tensor.CopyFrom(tensor)
    return value


def test_a_v1_writers_file_gives_the_doubles_of_its_floats_and_their_times(tmp_path: Path) -> None:
    threads = threading.active_count()
    writer = EventFileWriter(str(tmp_path / "run"))
    for step in range(5):
        value = summary_pb2.Summary.Value(tag="train/loss", simple_value=0.1 + step)
        writer.add_event(files.event(step, [value]))
    writer.close()
    (batch,) = pull(tmp_path / "run")
    assert rows_of([batch]) == [(step, "train/loss", float(np.float32(0.1 + step))) for step in range(5)]
    first = datetime.fromtimestamp(files.START, UTC).replace(tzinfo=None)
    assert batch.rows["logged_at"][0] == first
    assert batch.notes == {}
    assert threading.active_count() == threads
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_v2_writers_file_gives_its_scalars(tmp_path: Path) -> None:
    writer = Writer(tmp_path.as_posix())
    for step in range(4):
        writer.add_scalar("loss", np.float32(math.nan if step == 2 else 1 / (1 + step)), step, wall_time=files.START)
    writer.close()
    wanted = [float(np.float32(1 / (1 + step))) for step in range(4)]
    wanted[2] = math.nan
    assert repr(rows_of(pull(tmp_path))) == repr([(float(step), "loss", value) for step, value in enumerate(wanted)])


@pytest.mark.parametrize("whole", [True, False], ids=["as bytes", "as a number"])
@pytest.mark.parametrize(
    ("number", "field", "dtype", "value"),
    [
        (1, "float_val", "<f4", 0.5), (2, "double_val", "<f8", 0.1), (3, "int_val", "<i4", -7), (4, "int_val", "u1", 200),
        (5, "int_val", "<i2", -300), (6, "int_val", "i1", -3), (9, "int64_val", "<i8", -(1 << 40)), (10, "bool_val", "?", True),
        (17, "int_val", "<u2", 60_000), (22, "uint32_val", "<u4", 4_000_000_000), (23, "uint64_val", "<u8", 1 << 60),
    ],
)  # fmt: skip
def test_tensors_of_every_kind_of_number(
    number: int, field: str, dtype: str, value: Any, whole: bool, tmp_path: Path
) -> None:
    held = {"tensor_content": np.array(value, dtype).tobytes()} if whole else {field: [value]}
    tensor = tensor_pb2.TensorProto(dtype=number, **held)
    (tmp_path / "x").write_bytes(files.event_records([files.event(3, [scalar(tensor)]).SerializeToString()]))
    assert rows_of(pull(tmp_path / "x")) == [(3.0, "x", float(value))]


@pytest.mark.parametrize(("number", "bits"), [(19, 0x3E00), (14, 0x3FC0)], ids=["half", "bfloat16"])
@pytest.mark.parametrize("whole", [True, False])
def test_numbers_of_sixteen_bits(number: int, bits: int, whole: bool, tmp_path: Path) -> None:
    held = {"tensor_content": struct.pack("<H", bits)} if whole else {"half_val": [bits]}
    tensor = tensor_pb2.TensorProto(dtype=number, **held)
    (tmp_path / "x").write_bytes(files.event_records([files.event(3, [scalar(tensor)]).SerializeToString()]))
    assert rows_of(pull(tmp_path / "x")) == [(3.0, "x", 1.5)]


def test_what_is_no_scalar_is_counted_and_passed_over(tmp_path: Path) -> None:
    vector = tensor_pb2.TensorProto(dtype=1, float_val=[1.0, 2.0])
    vector.tensor_shape.dim.add(size=2)
    text = tensor_pb2.TensorProto(dtype=7, string_val=[b"hello"])
    one = tensor_pb2.TensorProto(dtype=1, float_val=[1.0])
    values = [
        summary_pb2.Summary.Value(tag="old histogram", histo=summary_pb2.HistogramProto(num=3)),
        summary_pb2.Summary.Value(tag="image", image=summary_pb2.Summary.Image(height=2)),
        scalar(vector, "histograms"), scalar(text, "text"), scalar(one, "hparams"), files.as_tensor("loss", 2.5),
    ]  # fmt: skip
    (tmp_path / "x").write_bytes(files.event_records([files.event(1, values).SerializeToString()]))
    batches = pull(tmp_path / "x")
    assert rows_of(batches) == [(1.0, "loss", 2.5)]
    assert notes_of(batches) == {NO_SCALAR: 5}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_mixture_of_events_gives_what_tensorboards_own_loader_gives(
    data: st.DataObject, tmp_path_factory: Any
) -> None:
    number = st.floats(width=32, allow_nan=False)
    kinds = st.sampled_from(["simple", "double", "histogram", "several", "nothing", "no step"])
    payloads = []
    for kind in data.draw(st.lists(kinds, max_size=40)):
        step, value = data.draw(st.integers(-3, 1 << 40)), data.draw(number)
        tag = data.draw(st.sampled_from(["loss", "lr", "train/ä"]))
        simple = summary_pb2.Summary.Value(tag=tag, simple_value=value)
        values = {
            "double": [files.as_tensor(tag, value)],
            "several": [simple, files.as_tensor("b", value)],
            "nothing": [],
        }
        histogram = [
            summary_pb2.Summary.Value(tag=tag, histo=summary_pb2.HistogramProto(num=1, bucket_limit=[1], bucket=[1]))
        ]
        one = files.event(
            0 if kind == "no step" else step, histogram if kind == "histogram" else values.get(kind, [simple])
        )
        payloads.append(one.SerializeToString())
    path = tmp_path_factory.mktemp("x") / "x"
    path.write_bytes(
        files.event_records(
            [event_pb2.Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString(), *payloads]
        )
    )
    wanted = []
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                held = value.tensor.float_val or value.tensor.double_val
                number_of = held[0] if held else np.frombuffer(value.tensor.tensor_content, "<f4")[0]
                wanted.append((float(event.step), value.tag, float(number_of)))
    assert rows_of(pull(path)) == wanted


@given(st.lists(st.binary(min_size=4, max_size=300), max_size=20))
def test_checksums_are_those_of_tensorboards(texts: list[bytes]) -> None:
    assert crc32c(texts).tolist() == [reference(text) for text in texts]


def test_checksums_of_long_strings() -> None:
    text = np.random.default_rng(0).bytes(70_001)
    assert crc32c([text, b"123456789"]).tolist() == [reference(text), 0xE3069283]


@pytest.mark.parametrize("doubles", [True, False], ids=["v2", "v1"])
def test_cut_at_every_byte_the_rows_are_the_same_in_the_end(doubles: bool, tmp_path: Path) -> None:
    content, path = files.event_file(loss(range(6)), doubles=doubles), tmp_path / "run"
    cursor, found = None, []
    for end in range(len(content) + 1):
        path.write_bytes(content[:end])
        try:
            batches = pull(path, cursor)
        except BadInput:
            assert end < 16  # not even a length
            continue
        found += rows_of(batches)
        cursor = batches[-1].cursor if batches else cursor
        assert not any(batch.restart or batch.notes for batch in batches)
    kind = np.float64 if doubles else np.float32
    assert found == [(step, name, float(kind(value))) for step, row in loss(range(6)) for name, value in row.items()]


def damaged(content: bytes, record: int, at: int) -> bytes:
    """One byte of a record changed: 0 in its length, 12 in its payload."""
    place = 0
    for _ in range(record):
        place += struct.unpack_from("<Q", content, place)[0] + 16
    return content[: place + at] + bytes([content[place + at] ^ 1]) + content[place + at + 1 :]


def test_a_record_with_a_wrong_checksum_is_passed_over_and_counted(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(damaged(files.event_file(loss(range(4))), 3, 14))
    batches = pull(tmp_path / "x")
    wanted = [(step, name, value) for step, row in loss(range(4)) for name, value in row.items()]
    assert rows_of(batches) == [*wanted[:2], *wanted[3:]]
    assert notes_of(batches) == {"record with a wrong checksum": 1}


def test_the_last_record_with_a_wrong_checksum_waits_for_its_bytes(tmp_path: Path) -> None:
    content, path = files.event_file(loss(range(2))), tmp_path / "x"
    path.write_bytes(damaged(content, 4, 14))
    first = pull(path)
    path.write_bytes(content)
    second = pull(path, first[-1].cursor)
    assert [len(rows_of(first)), len(rows_of(second))] == [3, 1]
    assert notes_of(first) == {}


def test_behind_a_damaged_length_nothing_is_read_and_that_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(damaged(files.event_file(loss(range(4))), 3, 1))
    first = pull(path)
    assert (len(rows_of(first)), notes_of(first)) == (2, {LOST: 1})
    assert notes_of(pull(path, first[-1].cursor)) == {}
    path.write_bytes(files.event_file(loss(range(4))))  # zeros that were no data yet, say
    assert len(rows_of(pull(path, first[-1].cursor))) == 6


@pytest.mark.parametrize("there", [True, False], ids=["there", "claimed"])
def test_a_record_of_two_gigabytes_takes_no_memory(there: bool, tmp_path: Path) -> None:
    content, path = files.event_file(loss(range(2))), tmp_path / "x"
    length = struct.pack("<Q", 2 << 30)
    check = files.event_records([b""])[:0] + struct.pack("<I", masked(length))
    with path.open("wb") as file:
        file.write(content + length + check)
        if there:  # a hole in the file
            file.seek((2 << 30) + 4, 1)
            file.write(files.event_file(loss(range(2, 3))))
    batches = pull(path)
    assert len(rows_of(batches)) == (6 if there else 4)
    assert notes_of(batches) == ({"record of more than 8 MB": 1} if there else {})


def masked(text: bytes) -> int:
    value = reference(text)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_restart_that_goes_back_is_a_new_attempt(tmp_path: Path) -> None:
    put(tmp_path, "1.a", loss(range(100)))
    put(tmp_path, "2.b", loss(range(60, 130), 2.0), start=files.START + 100)
    (batch,) = pull(tmp_path)
    tracker = Tracker()
    stored = assign(batch.rows, tracker, final=True)
    assert [(each.first_step, each.reason) for each in tracker.attempts] == [(0.0, "start"), (60.0, "rewind")]
    assert stored.filter(attempt=1).filter(name="loss")["step"].to_list() == list(range(60, 130))


def test_a_file_that_comes_later_is_read_behind_the_others(tmp_path: Path) -> None:
    put(tmp_path, "1.a", loss(range(10)))
    first = pull(tmp_path)
    put(tmp_path, "1.a", loss(range(12)))
    put(tmp_path, "2.b", loss(range(12, 15)), start=files.START + 1)
    second = pull(tmp_path, first[-1].cursor)
    assert not second[0].restart
    assert [step for step, name, _ in rows_of(second) if name == "loss"] == [10, 11, 12, 13, 14]


def test_files_that_are_written_at_once_are_read_in_the_order_of_their_time(tmp_path: Path) -> None:
    put(tmp_path, "1.a", [(step, {"loss": 1.0}) for step in range(0, 9_000, 2)])
    put(tmp_path, "2.b", [(step, {"grad_norm": 1.0}) for step in range(1, 9_000, 2)])
    assert [step for step, _, _ in rows_of(pull(tmp_path))] == list(range(9_000))


def test_the_pull_goes_on_in_the_middle_of_files_that_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.sources.strands.FLUSH_ROWS", 1)
    monkeypatch.setattr("flows.sources.tfrecords.BLOCK_BYTES", 400)
    put(tmp_path, "1.a", loss(range(0, 90, 2)))
    put(tmp_path, "2.b", [(step, {"eval": 1.0}) for step in range(1, 90, 3)])
    put(tmp_path, "3.c", loss(range(40, 70)), start=files.START + 50)
    whole = pull(tmp_path)
    assert len(whole) > 10
    wanted = rows_of(whole)
    losses = [pair for steps in (range(0, 90, 2), range(40, 70)) for pair in loss(steps)]
    evals = [(step, {"eval": 1.0}) for step in range(1, 90, 3)]
    assert sorted(wanted) == sorted((step, name, value) for step, row in losses + evals for name, value in row.items())
    for at, batch in enumerate(whole[:-1]):
        rest = [row for each in pull(tmp_path, batch.cursor) for row in rows_of([each])]
        assert rest == [row for each in whole[at + 1 :] for row in rows_of([each])]


def test_train_and_validation_folders_are_parts_of_one_run(tmp_path: Path) -> None:
    put(tmp_path / "exp" / "train", "1.a", [(step, {"epoch_loss": 1.0}) for step in range(5)])
    put(tmp_path / "exp" / "validation", "1.b", [(step, {"epoch_loss": 2.0}) for step in range(5)])
    (source,) = open_sources(str(tmp_path / "exp"))
    assert source.describe().run == "exp"
    rows = rows_of(list(source.pull(None)))
    assert rows[:2] == [(0.0, "train/epoch_loss", 1.0), (0.0, "validation/epoch_loss", 2.0)]
    assert len(rows) == 10


def test_other_folders_are_runs_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        put(tmp_path / name, "1.x", loss(range(3)))
    put(tmp_path / "a" / "loss_train", "1.x", loss(range(3)))
    sources = open_sources(str(tmp_path))
    assert [source.describe().run for source in sources] == ["a", "b/c"]
    names = {name for _, name, _ in rows_of(list(sources[0].pull(None)))}
    assert names == {"loss", "lr", "loss_train/loss", "loss_train/lr"}
    assert [each.describe().run for each in open_sources(str(tmp_path), run="x")] == ["x/a", "x/b/c"]


def test_a_run_keeps_its_name_when_another_one_comes_beside_it(tmp_path: Path) -> None:
    put(tmp_path / "a", "1.x", loss(range(3)))
    assert [source.describe().run for source in open_sources(str(tmp_path))] == ["a"]
    put(tmp_path / "b", "1.x", loss(range(3)))
    assert [source.describe().run for source in open_sources(str(tmp_path))] == ["a", "b"]


def test_one_replaced_file_begins_the_run_anew(tmp_path: Path) -> None:
    put(tmp_path, "1.a", loss(range(5)))
    put(tmp_path, "2.b", loss(range(5, 9)), start=files.START + 5)
    first = pull(tmp_path)
    put(tmp_path, "1.a", loss(range(5), 3.0))
    second = pull(tmp_path, first[-1].cursor)
    assert second[0].restart
    assert len(rows_of(second)) == 18


def test_a_file_that_is_gone_leaves_the_others_where_they_were(tmp_path: Path) -> None:
    put(tmp_path, "1.a", loss(range(5)))
    put(tmp_path, "2.b", loss(range(5, 9)), start=files.START + 5)
    first = pull(tmp_path)
    (tmp_path / "events.out.tfevents.1.a").unlink()
    assert not any(batch.restart or len(batch.rows) for batch in pull(tmp_path, first[-1].cursor))


def test_a_step_key_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "1.a", loss(range(5)))
    with pytest.raises(BadInput, match="one step"):
        open_sources(str(tmp_path), step_key="tokens")


def test_times_that_are_none_of_a_clock_are_none(tmp_path: Path) -> None:
    events = [event_pb2.Event(wall_time=time, step=1, summary=summary_pb2.Summary(value=[files.as_tensor("x", 1.0)]))
              for time in (0.0, math.nan, 1e300, -5.0)]  # fmt: skip
    (tmp_path / "x").write_bytes(files.event_records([each.SerializeToString() for each in events]))
    (batch,) = pull(tmp_path / "x")
    assert batch.rows["logged_at"].to_list() == [None] * 4
    assert isinstance(batch.rows, pl.DataFrame)


def test_a_tensor_of_very_many_dimensions_is_passed_over_at_once(tmp_path: Path) -> None:
    tensor = tensor_pb2.TensorProto(dtype=files.DOUBLE, double_val=[1.0])
    for _ in range(400_000):  # the product of so many large sizes takes hours
        tensor.tensor_shape.dim.add(size=2**62 + 1)
    bomb = summary_pb2.Summary.Value(tag="loss", tensor=tensor)
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(files.event_records([files.event(1, [bomb, files.as_tensor("loss", 2.0)]).SerializeToString()]))
    (batch,) = open_sources(str(path))[0].pull(None)
    assert batch.rows.select("step", "value").rows() == [(1.0, 2.0)]
    assert batch.notes == {"histogram, image, text or other value that is no scalar": 1}


def test_a_record_that_says_it_is_longer_than_any_message_is_told_not_awaited(tmp_path: Path) -> None:
    rows = [(step, {"loss": float(step)}) for step in range(2)]
    length = (1 << 40).to_bytes(8, "little")
    header = length + int(masked_crc32c([length])[0]).to_bytes(4, "little")
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(files.event_file(rows) + header + b"\0" * 100)
    (source,) = open_sources(str(path))
    batches = list(source.pull(None))
    assert ([r for b in batches for r in b.rows["value"]], [dict(b.notes) for b in batches][-1]) == (
        [0.0, 1.0],
        {LOST: 1},
    )
