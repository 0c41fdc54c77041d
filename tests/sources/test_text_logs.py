# ruff: noqa: E501 - the lines are as long as the trainers print them
"""Console logs in the words of the trainers that print them: which samples come out, under which names, at which steps."""

import gzip
import math
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from flows.errors import BadInput
from flows.sources.catalogue import open_sources
from flows.sources.grammar import built_in
from flows.sources.roles import role_of
from flows.sources.textlog import TextLog

Row = tuple[float, str, float]


def read(tmp_path: Path, text: str, step_key: str | None = None) -> tuple[TextLog, list[Row], dict[str, int]]:
    path = tmp_path / "run.log"
    path.write_text(text, newline="")
    (source,) = open_sources(str(path), step_key=step_key)
    assert isinstance(source, TextLog)
    batches = list(source.pull(None))
    notes: dict[str, int] = {}
    for batch in batches:
        for what, count in batch.notes.items():
            notes[what] = notes.get(what, 0) + count
    return source, [row for batch in batches for row in batch.rows.select("step", "name", "value").iter_rows()], notes


def roles(rows: list[Row]) -> dict[str, str]:
    return {name: role for _, name, _ in rows if (role := role_of(name).role) != "other"}


MEGATRON = """\
> building train, validation, and test datasets for GPT ...
 [2025-03-01 10:00:01.250000] iteration        1/  500000 | consumed samples:          256 | elapsed time per iteration (ms): 15123.4 | \
throughput per GPU (TFLOP/s/GPU): 401.5 | learning rate: 1.500000E-07 | global batch size:   256 | lm loss: 1.103215E+01 | \
load_balancing_loss: 1.012E+00 | loss scale: 1.0 | grad norm: 12.345 | num zeros: 0 | params norm: 812.250 | \
number of skipped iterations:   0 | number of nan iterations:   0 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 12234.5 | max allocated: 15234.5
 [2025-03-01 10:00:06.250000] iteration        2/  500000 | consumed samples:          512 | elapsed time per iteration (ms): 5001.0 | \
throughput per GPU (TFLOP/s/GPU): 1,201.5 | learning rate: 3.000000E-07 | global batch size:   256 | lm loss: nan | \
load_balancing_loss: 1.012E+00 | loss scale: 1.0 | grad norm: inf | num zeros: 0 | params norm: 812.250 | \
number of skipped iterations:   1 | number of nan iterations:   0 |
------------------------------------------------------------------------------------------------
 validation loss at iteration 2 | lm loss value: 1.093215E+01 | lm loss PPL: 5.594E+04 | \

 validation loss at iteration 2 on test set | lm loss value: 1.113215E+01 | lm loss PPL: 6.594E+04 | \

"""


def test_megatron(tmp_path: Path) -> None:
    source, rows, _ = read(tmp_path, MEGATRON)
    assert (source.describe().format, source.describe().step_key) == ("text/megatron", "iteration")
    first = {name: value for step, name, value in rows if step == 1}
    assert first == {
        "consumed samples": 256, "elapsed time per iteration (ms)": 15123.4, "throughput per GPU (TFLOP/s/GPU)": 401.5,
        "learning rate": 1.5e-07, "global batch size": 256, "lm loss": 11.03215, "load_balancing_loss": 1.012,
        "loss scale": 1, "grad norm": 12.345, "num zeros": 0, "params norm": 812.25,
        "number of skipped iterations": 0, "number of nan iterations": 0,
    }  # fmt: skip
    second = {name: value for step, name, value in rows if step == 2}
    assert math.isnan(second["lm loss"])
    assert (second["grad norm"], second["throughput per GPU (TFLOP/s/GPU)"]) == (math.inf, 1201.5)
    assert second["validation lm loss value"] == 10.93215
    assert second["test lm loss value"] == 11.13215
    assert roles(rows) == {
        "elapsed time per iteration (ms)": "step_time", "throughput per GPU (TFLOP/s/GPU)": "throughput",
        "learning rate": "learning_rate", "global batch size": "batch_size", "lm loss": "loss", "grad norm": "grad_norm",
        "params norm": "param_norm", "number of skipped iterations": "skipped_steps",
        "validation lm loss value": "eval_loss", "test lm loss value": "eval_loss",
    }  # fmt: skip
    assert role_of("elapsed time per iteration (ms)").unit == "ms"


def test_times_are_those_of_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(MEGATRON)
    (batch,) = open_sources(str(path))[0].pull(None)
    times = batch.rows.filter(name="lm loss")["logged_at"].dt.to_string("%F %T%.6f").to_list()
    assert times == ["2025-03-01 10:00:01.250000", "2025-03-01 10:00:06.250000"]
    assert batch.rows.filter(name="test lm loss value")["logged_at"].to_list() == [None]


def test_a_time_with_an_offset_is_utc(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("2025-03-01T10:00:01+02:00 s: step:1/5 train_time:1ms step_avg:2ms\n")
    (batch,) = open_sources(str(path))[0].pull(None)
    assert batch.rows["logged_at"][0].isoformat() == "2025-03-01T08:00:01"


def test_nanotron(tmp_path: Path) -> None:
    line = (
        "\x1b[2;3m03/01 10:00:0{at} [INFO|DP=0|PP=0|TP=0|ip-26-0-160-1]\x1b[0m: iteration: {at} / 100 | consumed_tokens: 1.05M | "
        "elapsed_time_per_iteration_ms: 2.58K | tokens_per_sec: 406K | tokens_per_sec_per_gpu: 50.8K | global_batch_size: 256 | "
        "lm_loss: 10.{at} | lr: 1.5e-05 | model_tflops_per_gpu: 41.2 | hardware_tflops_per_gpu: 41.2 | grad_norm: 15.8 | "
        "cuda_max_memory_reserved: 14.7G | eta: 1 day, 2:03:04\n"
    )
    source, rows, _ = read(tmp_path, line.format(at=1) + "03/01 saving checkpoint\n" + line.format(at=2))
    assert source.describe().format == "text/nanotron"
    second = {name: value for step, name, value in rows if step == 2}
    assert second == {
        "consumed_tokens": 1.05e6, "elapsed_time_per_iteration_ms": 2580, "tokens_per_sec": 406e3,
        "tokens_per_sec_per_gpu": 50.8e3, "global_batch_size": 256, "lm_loss": 10.2, "lr": 1.5e-05,
        "model_tflops_per_gpu": 41.2, "hardware_tflops_per_gpu": 41.2, "grad_norm": 15.8,
        "cuda_max_memory_reserved": 14.7e9,
    }  # fmt: skip
    assert roles(rows)["lm_loss"] == "loss"
    assert {"eta", "lm_loss"} & {name for _, name, _ in rows} == {"lm_loss"}


def test_torchtitan(tmp_path: Path) -> None:
    text = (
        "[rank0]:[titan] 2025-03-01 10:00:00,123 - root - INFO - Training starts at step 1\n"
        "[rank0]:[titan] 2025-03-01 10:00:01,123 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2721  \x1b[38;2;180;60;0mgrad_norm:  1.4137  "
        "\x1b[36mmemory: 30.11GiB(31.72%)  \x1b[34mtps: 997  \x1b[36mtflops: 58.37  \x1b[35mmfu: 0.90%\x1b[39m\n"
        "[rank0]:[titan] 2025-03-01 10:00:09,123 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss: -1.5000  \x1b[38;2;180;60;0mgrad_norm:     nan  "
        "\x1b[36mmemory: 36.34GiB(38.25%)  \x1b[34mtps: 7,203  \x1b[36mtflops: 1,421.30  \x1b[35mmfu: 42.60%\x1b[39m\n"
        "[rank0]:[titan] 2025-03-01 10:00:19,123 - root - INFO - \x1b[33mvalidate step: 10  \x1b[32mloss: 10.5000  \x1b[36mmemory: 36.34GiB(38.25%)  "
        "\x1b[34mtps: 21,203\x1b[39m\n"
    )
    source, rows, _ = read(tmp_path, text)
    assert source.describe().format == "text/torchtitan"
    assert rows[:6] == [
        (1, "loss", 12.2721), (1, "grad_norm", 1.4137), (1, "memory", 30.11), (1, "tps", 997), (1, "tflops", 58.37), (1, "mfu(%)", 0.9),
    ]  # fmt: skip
    last = {name: value for step, name, value in rows if step == 10}
    assert math.isnan(last.pop("grad_norm"))
    assert last == {
        "loss": -1.5, "memory": 36.34, "tps": 7203, "tflops": 1421.3, "mfu(%)": 42.6,
        "validate loss": 10.5, "validate memory": 36.34, "validate tps": 21203,
    }  # fmt: skip
    assert roles(rows) == {
        "loss": "loss", "grad_norm": "grad_norm", "memory": "memory", "tps": "throughput", "tflops": "throughput",
        "mfu(%)": "mfu", "validate loss": "eval_loss",
    }  # fmt: skip
    assert role_of("mfu(%)").unit == "percent"


def test_deepspeed(tmp_path: Path) -> None:
    text = (
        "[2023-11-07 01:55:08,040] [INFO] [logging.py:96:log_dist] [Rank 0] Overflow detected. Skipping step. Attempted loss scale: 8192.0\n"
        "[2023-11-07 01:55:23,711] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[4.99e-05, 4.99e-05], mom=[(0.9, 0.95), (0.9, 0.95)]\n"
        "[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.02, "
        "CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
        "steps: 20 loss: 5.4321 iter time (s): 0.450 samples/sec: 71.111\n"
    )
    source, rows, _ = read(tmp_path, text)
    assert (source.describe().format, source.describe().step_key) == ("text/deepspeed", "global_step")
    assert rows == [
        (10, "skipped", 4), (10, "lr", 4.99e-05), (10, "RunningAvgSamplesPerSec", 25.02), (10, "CurrSamplesPerSec", 25.7),
        (10, "MemAllocated", 4.32), (10, "MaxMemAllocated", 38.49), (20, "loss", 5.4321), (20, "iter time (s)", 0.45), (20, "samples/sec", 71.111),
    ]  # fmt: skip
    assert roles(rows) == {
        "lr": "learning_rate", "CurrSamplesPerSec": "throughput", "MemAllocated": "memory", "MaxMemAllocated": "memory",
        "loss": "loss", "iter time (s)": "step_time", "samples/sec": "throughput",
    }  # fmt: skip


def test_modded_nanogpt_old_and_new(tmp_path: Path) -> None:
    text = (
        "import os\nwith open(sys.argv[0]) as f:\n====================\nRunning pytorch 2.6.0\n"
        "step:0/6000 val_loss:11.0149 train_time:305ms step_avg:nanms\n"
        "step:1/6000 train_loss:11.0091 train_time:24179ms step_avg:nanms\n"
        "step:1390/1770 train_time:130712ms step_avg:94.04ms\n"
        "step:1750/1770 val_loss:3.2796 train_time:164571ms step_avg:94.04ms\n"
    )
    source, rows, _ = read(tmp_path, text)
    assert source.describe().format == "text/modded-nanogpt"
    assert [row for row in rows if row[1] not in ("train_time", "step_avg")] == [
        (0, "val_loss", 11.0149), (1, "train_loss", 11.0091), (1750, "val_loss", 3.2796),
    ]  # fmt: skip
    assert [value for _, name, value in rows if name == "step_avg"][2:] == [94.04, 94.04]
    assert math.isnan(next(value for _, name, value in rows if name == "step_avg"))


def test_llmc_file_and_console(tmp_path: Path) -> None:
    source, rows, _ = read(tmp_path, "s:0 tel:11.0092\ns:0 eval:0.2466\ns:0 trl:11.0091 lr:0.000001 norm:15.37\n")
    assert source.describe().format == "text/llm.c"
    assert rows == [
        (0, "tel", 11.0092), (0, "eval", 0.2466), (0, "trl", 11.0091), (0, "lr", 0.000001), (0, "norm", 15.37),
    ]  # fmt: skip
    console = (
        "| device                | NVIDIA H100 80GB HBM3 |\n"
        "val loss 11.009200\n"
        "step    1/19560 | loss 11.009100 (+nanz)| norm 15.3700 (+nanz)| lr 8.57e-07 | 3071.84 ms | -100.0% bf16 MFU | 170674 tok/s\n"
        "step  130/19560 | loss 6.512000 (-1.25z)| norm 1.2000 (+0.31z)| lr 1.11e-04 | 2951.20 ms | 43.1% bf16 MFU | 177411 tok/s\n"
        "val loss 6.4\nHellaSwag: 2632/10042 = 0.262099\n"
    )
    _, rows, notes = read(tmp_path, console)
    assert [row for row in rows if row[0] == 130] == [
        (130, "loss", 6.512), (130, "norm", 1.2), (130, "lr", 1.11e-4), (130, "step time (ms)", 2951.2), (130, "mfu(%)", 43.1),
        (130, "tok/s", 177411), (130, "val loss", 6.4), (130, "hellaswag", 0.262099),
    ]  # fmt: skip
    assert rows[0] == (0, "val loss", 11.0092)
    assert notes == {"line without a step, taken at the last one": 3}
    assert roles(rows) == {
        "loss": "loss", "norm": "grad_norm", "lr": "learning_rate", "step time (ms)": "step_time", "mfu(%)": "mfu",
        "tok/s": "throughput", "val loss": "eval_loss", "hellaswag": "eval_score",
    }  # fmt: skip


def test_nanogpt_and_nanochat(tmp_path: Path) -> None:
    text = (
        "step 0: train loss 10.9100, val loss 10.9200\niter 0: loss 10.9, time 12345.67ms, mfu -100.00%\n"
        "iter 10: loss 9.5, time 135.20ms, mfu 41.20%\n"
        "step 00100/21400 (0.47%) | loss: 4.212345 | lrm: 1.00 | dt: 312.10ms | tok/sec: 1,679,000 | mfu: 47.60 | total time: 5.10m\n"
        "Step 00250 | Validation bpb: 1.0123\n"
    )
    source, rows, _ = read(tmp_path, text)
    assert source.describe().format == "text/nanogpt"
    assert [row for row in rows if row[0] in (0, 100, 250)] == [
        (0, "eval train loss", 10.91), (0, "val loss", 10.92), (0, "loss", 10.9), (0, "step time (ms)", 12345.67), (0, "mfu(%)", -100),
        (100, "loss", 4.212345), (100, "lrm", 1), (100, "dt (ms)", 312.1), (100, "tok/sec", 1679000), (100, "mfu", 47.6),
        (100, "total time", 5.1), (250, "Validation bpb", 1.0123),
    ]  # fmt: skip


def test_nemo(tmp_path: Path) -> None:
    text = (
        "[NeMo W 2025-06-18 21:57:03 rerun_state_machine:239] RerunStateMachine initialized in mode RerunMode.DISABLED\n"
        "Training epoch 0, iteration 0/99 | lr: 1.469e-05 | global_batch_size: 128 | global_step: 0 | reduced_train_loss: 11.03 | train_step_timing in s: 61.94\n"
        "Training epoch 0, iteration 1/99 | lr: 1.484e-05 | global_batch_size: 128 | global_step: 1 | reduced_train_loss: 10.93 | train_step_timing in s: 12.21 "
        "| consumed_samples: 256 | val_loss: 10.5\n"
    )
    source, rows, _ = read(tmp_path, text)
    assert (source.describe().format, source.describe().step_key) == ("text/nemo", "global_step")
    assert rows[4:] == [
        (1, "lr", 1.484e-05), (1, "global_batch_size", 128), (1, "reduced_train_loss", 10.93), (1, "train_step_timing in s", 12.21),
        (1, "consumed_samples", 256), (1, "val_loss", 10.5),
    ]  # fmt: skip


HUGGING = (
    "  0%|          | 0/100 [00:00<?, ?it/s]\r  1%|1         | 1/100 [00:01<01:39,  1.00s/it]\r                \r"
    "{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.01}\n"
    "\r  2%|2         | 2/100 [00:02<01:38,  1.00s/it]\r"
    "{'loss': '2.25', 'grad_norm': 'nan', 'learning_rate': '4e-05', 'epoch': '0.02'}\n"
    "{'eval_loss': 2.125, 'eval_runtime': 3.5, 'eval_samples_per_second': 10.0, 'epoch': 0.02}\n"
    "{'loss': 2.0, 'grad_norm': 1.0, 'learning_rate': 3e-05, 'epoch': 0.03}\n"
    "{'train_runtime': 30.5, 'train_samples_per_second': 3.3, 'train_loss': 2.25, 'epoch': 0.03}\n"
)


def test_hugging_face_dicts_among_progress_bars(tmp_path: Path) -> None:
    source, rows, _ = read(tmp_path, HUGGING)
    assert (source.describe().format, source.describe().step_key) == ("text/huggingface", "row number")
    assert [(step, value) for step, name, value in rows if name == "loss"] == [(1, 2.5), (2, 2.25), (3, 2.0)]
    assert (2, "eval_loss", 2.125) in rows
    assert role_of(next(name for _, name, value in rows if value == 30.5)).role == "other"
    assert [name for name, role in roles(rows).items() if role == "loss"] == ["loss"]


def test_hugging_face_by_epoch(tmp_path: Path) -> None:
    source, rows, _ = read(tmp_path, HUGGING, step_key="epoch")
    assert source.describe().step_key == "epoch"
    assert [(step, value) for step, name, value in rows if name == "loss"] == [(0.01, 2.5), (0.02, 2.25), (0.03, 2.0)]
    with pytest.raises(BadInput, match=r"no number .steps. in its first lines with metrics .*grad_norm"):
        read(tmp_path, HUGGING, step_key="steps")


def test_axolotl_lines_carry_texts_before_the_dict(tmp_path: Path) -> None:
    _, rows, _ = read(
        tmp_path, "[2025-03-01 10:00:01,123] [INFO] x\n{'loss': 1.5, 'memory/max_active (GiB)': '12.5', 'epoch': 0.1}\n"
    )
    assert rows[:2] == [(1, "loss", 1.5), (1, "memory/max_active (GiB)", 12.5)]


def test_lightning_bars_count_steps_over_epochs(tmp_path: Path) -> None:
    bar = "Epoch {e}:  {p}%|█████     | {n}/10 [00:0{n}<00:05,  4.98it/s, v_num=7, train_loss={loss}, lr=1e-4]"
    text = "Sanity Checking DataLoader 0: 100%|███| 2/2 [00:00<00:00,  9.98it/s]\r" + "\r".join(
        bar.format(e=e, p=10 * n, n=n, loss=loss)
        for e, n, loss in [(0, 1, "2.310"), (0, 1, "2.310"), (0, 2, "2.25"), (1, 1, "1.5"), (1, 2, "nan")]
    )
    source, rows, _ = read(tmp_path, text + "\n")
    assert source.describe().format == "text/progress bar"
    losses = [(step, value) for step, name, value in rows if name == "train_loss"]
    assert losses[:3] == [(1, 2.31), (2, 2.25), (11, 1.5)]
    assert len(losses) == 4
    assert math.isnan(losses[3][1])
    assert {name for _, name, _ in rows} == {"train_loss", "lr"}


@pytest.mark.parametrize(
    "line",
    [
        "2025-03-01 10:00:0{at} INFO train.py:312 step={at} loss={loss} grad_norm=0.5",
        "step: {at}, loss: {loss}, grad_norm: 0.5",
        "[step {at}/100] loss={loss} | grad_norm=0.5",
        "Iteration {at}  loss {loss}  grad_norm: 0.5",
        '{{"time": "x", "step": {at}, "loss": {loss}, "grad_norm": 0.5, }}'.replace("{{", "log {{"),
        "global_step={at} loss={loss} grad_norm=5.0e-01 file=/tmp/a.bin",
    ],
)
def test_any_line_of_keys_and_values_is_read_in_the_end(tmp_path: Path, line: str) -> None:
    text = "".join(f"{line.format(at=at, loss=2.5 - at / 4)}\nnoise: 12 files found\n" for at in (1, 2, 3))
    source, rows, _ = read(tmp_path, text)
    assert source.describe().format == "text/key=value"
    assert [row for row in rows if row[1] in ("loss", "grad_norm")] == [
        (1, "loss", 2.25), (1, "grad_norm", 0.5), (2, "loss", 2.0), (2, "grad_norm", 0.5), (3, "loss", 1.75), (3, "grad_norm", 0.5),
    ]  # fmt: skip
    assert {name for _, name, _ in rows} <= {"loss", "grad_norm"}


@pytest.mark.parametrize(
    "text",
    [
        "It went well: 3 of 4 were fine\n" * 20,
        "step one\nstep two\n" * 20,
        "loss: 2.5\nloss: 2.4\n" * 20,
        "max_steps: 100, loss: 3\nwarmup_steps=10 lr=0.1\n" * 20,
        "step 1 loss 2.5\nstep 2 accuracy_x 3\n",
    ],
)
def test_what_tells_no_step_or_no_metric_twice_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"no pattern of console logs fits its lines: see docs/sources\.md"):
        read(tmp_path, text)


def test_one_rank_is_taken_and_the_others_are_counted(tmp_path: Path) -> None:
    text = "".join(
        f"[rank{rank}]: step:{at}/100 train_loss:{10 * rank + at}.5 train_time:1ms step_avg:1ms\n"
        for at in (1, 2, 3)
        for rank in (3, 0, 1)
    )
    _, rows, notes = read(tmp_path, text)
    assert [(step, value) for step, name, value in rows if name == "train_loss"] == [(1, 31.5), (2, 32.5), (3, 33.5)]
    assert notes == {"line of another rank than rank3, which is the one taken": 6}


@pytest.mark.parametrize(
    "label", ["{}: ", "[default{}]:", "[1,{}]<stdout>:", "(RayTrainWorker pid={}, ip=10.0.0.1) ", "worker-{} | "]
)
def test_labels_of_launchers(tmp_path: Path, label: str) -> None:
    line = "{label}step:{at}/100 train_loss:{value} train_time:1ms step_avg:1ms\n"
    text = "".join(
        line.format(label=label.format(rank), at=at, value=100 * rank + at) for at in (1, 2) for rank in (9, 10)
    )
    _, rows, notes = read(tmp_path, text)
    assert [(step, value) for step, name, value in rows if name == "train_loss"] == [(1, 901), (2, 902)]
    assert sum(notes.values()) == 2


def test_another_rank_takes_over_when_the_first_is_gone(tmp_path: Path) -> None:
    line = "[rank{rank}]: step:{at}/900 train_loss:{rank} train_time:1ms step_avg:1ms\n"
    text = "".join(line.format(rank=7, at=at) for at in range(50)) + "".join(
        line.format(rank=3, at=at) for at in range(40, 300)
    )
    _, rows, notes = read(tmp_path, text)
    writers = [value for _, name, value in rows if name == "train_loss"]
    assert (writers.count(7), writers.count(3)) == (50, 260 - 63)
    assert notes == {"line of another rank than rank7, which is the one taken": 63}


def test_every_kind_of_line_has_a_rank_of_its_own(tmp_path: Path) -> None:
    text = "".join(
        f"[rank0]: [INFO] step={at}, skipped=0, lr=[0.1], mom=[0.9]\n[rank7]:  iteration {at}/ 9 | lm loss: 2.5 |\n"
        for at in (1, 2)
    )
    _, rows, notes = read(tmp_path, text)
    assert [name for _, name, _ in rows] == ["skipped", "lr", "lm loss"] * 2
    assert notes == {}


def test_another_number_can_be_the_step(tmp_path: Path) -> None:
    source, rows, _ = read(tmp_path, MEGATRON, step_key="consumed samples")
    assert source.describe().step_key == "consumed samples"
    assert [step for step, name, _ in rows if name == "lm loss"] == [256, 512]
    assert [step for step, name, _ in rows if name == "validation lm loss value"] == [512]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.log.{suffix}"
    if suffix == "gz":
        path.write_bytes(gzip.compress(MEGATRON.encode()))
    else:
        with path.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
            stream.write(MEGATRON.encode())
    (source,) = open_sources(str(path))
    assert source.describe().run == "run"
    assert pl.concat(batch.rows for batch in source.pull(None)).filter(name="lm loss").height == 2


def test_a_restart_in_the_same_file_goes_back_in_the_rows(tmp_path: Path) -> None:
    text = "".join(f"s:{at} trl:2.5 lr:0.1 norm:1.0\n" for at in [0, 1, 2, 3, 2, 3, 4])
    _, rows, _ = read(tmp_path, text)
    assert [step for step, name, _ in rows if name == "trl"] == [0, 1, 2, 3, 2, 3, 4]


HOSTILE = [
    " " * 19_000, "9" * 19_000, "1," * 9_000, "iteration " + " " * 19_000, "| " * 9_000, "step: 1  " + "a" * 19_000,
    "{'" * 9_000, "{'a': " * 3_000 + "'loss'", "step " * 3_800, "Epoch 1:  1%|" + "|" * 18_000, "a=" * 9_000, "nan" * 6_000, "1e" * 9_000,
    "a.b/" * 4_700, "'" * 19_000, "[rank" * 3_800, "2025-03-01 " * 1_700, "validation loss at " * 900, "-+" * 9_000, "= : " * 4_500,
    "Training epoch 1, iteration 1/2 | " + "global_step | " * 1_300, "12:34:56 " * 2_000, "steps: 1 loss: " + "loss " * 3_700,
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=[line[:14].strip() or "blanks" for line in HOSTILE])
def test_no_built_in_pattern_is_slow_on_a_hostile_line(line: str) -> None:
    """Quadratic work on 19,000 characters would take `regex` far beyond the limit; linear work a few milliseconds."""
    import regex

    for form in built_in():
        for pattern in (form.regex, form.pairs):
            if pattern is not None:
                compiled = regex.compile(pattern.pattern)
                for _ in compiled.finditer(line + " x", timeout=2.0):
                    pass


def test_a_line_of_100_kilobytes_is_passed_over(tmp_path: Path) -> None:
    text = "s:0 trl:2.5 lr:0.1 norm:1.0\n" + " " * 100_000 + "x\n" + "9" * 100_000 + "\ns:1 trl:2.5 lr:0.1 norm:1.0\n"
    _, rows, notes = read(tmp_path, text)
    assert len(rows) == 6
    assert notes == {"line too long for one of a log": 2}


def test_forms_have_names_of_their_own() -> None:
    kinds = [form.kind for form in built_in()]
    assert len(set(kinds)) == len(kinds)
    assert all("step" in form.regex.groupindex or not re.search(r"P<step>", form.regex.pattern) for form in built_in())


def test_metrics_far_behind_the_beginning_are_found(tmp_path: Path) -> None:
    noise = "".join(f"downloading, part {at} of many: {at}%\n" for at in range(60_000))
    source, rows, _ = read(tmp_path, noise + "s:0 trl:2.5 lr:0.1 norm:1.0\n")
    assert source.describe().format == "text/llm.c"
    assert len(rows) == 3


def test_a_table_with_words_of_a_log_in_it_stays_a_table(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,loss,iteration time,note\n" + "".join(f"{at},2.5,0.1,step: {at}\n" for at in range(20)))
    (source,) = open_sources(str(path))
    assert source.describe().format == "csv"
