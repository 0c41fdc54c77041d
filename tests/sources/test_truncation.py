"""A small file of each format, cut at every byte: a clear refusal or the rows that are whole, and in the end all of them."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import tracker_files as files

from flows.errors import BadInput, SourceUnavailable
from flows.sources.catalogue import open_sources

Row = tuple[float, str, float]
SAMPLE = 23  # of so many cuts one is tried in every test run
ROWS: files.Rows = [(10 * at, {"loss": 4 / (1 + at), "grad_norm": 0.25 + at}) for at in range(12)]


def expected() -> list[Row]:
    return [(float(step), name, value) for step, values in ROWS for name, value in values.items()]


def as_json_lines() -> bytes:
    return "".join(json.dumps({"step": step, **values}) + "\n" for step, values in ROWS).encode()


def as_csv() -> bytes:
    lines = [f"{step},{values['loss']!r},{values['grad_norm']!r}\n" for step, values in ROWS]
    return ("step,loss,grad_norm\n" + "".join(lines)).encode()


def as_text() -> bytes:
    lines = [f" iteration {step:8d}/ 400 | loss: {v['loss']!r} | grad_norm: {v['grad_norm']!r} |\n" for step, v in ROWS]
    return ("loading\n" + "".join(lines)).encode()


def as_pairs() -> bytes:
    return "".join(f"step={s} loss={v['loss']!r} grad_norm={v['grad_norm']!r}\n" for s, v in ROWS).encode()


def as_mllog() -> bytes:
    events = [
        {
            "key": "tracked_stats",
            "event_type": "POINT_IN_TIME",
            "time_ms": 1760029762382,
            "value": v,
            "metadata": {"step": s},
        }
        for s, v in ROWS
    ]
    return "".join(f":::MLLOG {json.dumps(event)}\n" for event in events).encode()


def as_trainer_state() -> bytes:
    history = [{"step": step, **values} for step, values in ROWS]
    return json.dumps({"epoch": 1.0, "log_history": history, "max_steps": 400}).encode()


def as_parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame([{"step": step, **values} for step, values in ROWS]).write_parquet(buffer)
    return buffer.getvalue()


GROWING: dict[str, Callable[[], bytes]] = {
    "jsonl": as_json_lines,
    "csv": as_csv,
    "megatron": as_text,
    "key=value": as_pairs,
    "mllog": as_mllog,
    "tensorboard": lambda: files.event_file(ROWS),
    "wandb": lambda: files.wandb_file(ROWS),
}
WHOLE: dict[str, Callable[[], bytes]] = {  # written at once: what is cut may be refused, and never gives other rows
    "gzip": lambda: gzip.compress(as_json_lines(), mtime=0),
    "trainer_state": as_trainer_state,
    "parquet": as_parquet,
    "trackio": lambda: files.trackio_file(ROWS),
}


def pulled(path: Path, cursor: str | None = None) -> tuple[list[Row], str | None, bool]:
    """Rows, the cursor behind them, and whether they begin anew; nothing where the file is refused in a sentence."""
    try:
        rows, restart = [], False
        for source in open_sources(str(path)):
            for batch in source.pull(cursor):
                restart = restart or batch.restart
                rows += batch.rows.select("step", "name", "value").rows()
                cursor = batch.cursor
    except (BadInput, SourceUnavailable) as error:
        assert str(error).strip() and "\n" not in str(error)
        return [], None, False
    return rows, cursor, restart


def cuts_of(content: bytes, every: int) -> range:
    return range(0, len(content) + 1, every)


def cut_and_whole(path: Path, content: bytes, every: int) -> None:
    for cut in cuts_of(content, every):
        path.write_bytes(content[:cut])
        first, cursor, _ = pulled(path)
        assert first == expected()[: len(first)], cut
        path.write_bytes(content)
        rest, _, restart = pulled(path, cursor)
        assert (rest if restart else first + rest) == expected(), cut


@pytest.mark.parametrize("name", GROWING)
def test_some_cuts_of_a_file_that_grows(name: str, tmp_path: Path) -> None:
    cut_and_whole(tmp_path / "run", GROWING[name](), SAMPLE)


@pytest.mark.faults
@pytest.mark.parametrize("name", GROWING)
def test_every_cut_of_a_file_that_grows(name: str, tmp_path: Path) -> None:
    cut_and_whole(tmp_path / "run", GROWING[name](), 1)


def cut_only(path: Path, content: bytes, every: int) -> None:
    for cut in cuts_of(content, every):
        path.write_bytes(content[:cut])
        found = pulled(path)[0]
        assert found == expected()[: len(found)], cut
    path.write_bytes(content)
    assert pulled(path)[0] == expected()


@pytest.mark.parametrize("name", WHOLE)
def test_some_cuts_of_a_file_that_is_written_at_once(name: str, tmp_path: Path) -> None:
    content = WHOLE[name]()
    cut_only(tmp_path / "run", content, max(SAMPLE, len(content) // 30))


@pytest.mark.faults
@pytest.mark.parametrize("name", WHOLE)
def test_every_cut_of_a_file_that_is_written_at_once(name: str, tmp_path: Path) -> None:
    content = WHOLE[name]()
    cut_only(tmp_path / "run", content, 1 if len(content) < 8_192 else 7)  # SQLite's pages are nearly empty


def mlflow_run(folder: Path) -> dict[Path, bytes]:
    run = folder / "mlruns" / "0" / ("a" * 32)
    (run / "metrics").mkdir(parents=True)
    meta = f"artifact_uri: x\nend_time: null\nexperiment_id: '0'\nlifecycle_stage: active\nrun_id: {'a' * 32}\nrun_name: r\n"
    (run / "meta.yaml").write_text(meta + f"run_uuid: {'a' * 32}\nstart_time: 1760029762382\nstatus: 1\nuser_id: u\n")
    names = ("loss", "grad_norm")
    return {
        run / "metrics" / name: "".join(f"{1760029762382 + s} {v[name]!r} {s}\n" for s, v in ROWS).encode()
        for name in names
    }


def cut_metrics(folder: Path, every: int) -> None:
    metrics = mlflow_run(folder)
    run = next(iter(metrics)).parent.parent
    for cut_one, content in metrics.items():
        for cut in cuts_of(content, every):
            for path, whole in metrics.items():
                path.write_bytes(whole[:cut] if path == cut_one else whole)
            first, cursor, _ = pulled(run)
            assert set(first) <= set(expected()), cut
            cut_one.write_bytes(content)
            rest, _, restart = pulled(run, cursor)
            assert sorted(rest if restart else first + rest) == sorted(expected()), cut


def test_some_cuts_of_mlflows_files(tmp_path: Path) -> None:
    cut_metrics(tmp_path, 2 * SAMPLE)


@pytest.mark.faults
def test_every_cut_of_mlflows_files(tmp_path: Path) -> None:
    cut_metrics(tmp_path, 1)
