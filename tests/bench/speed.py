"""make bench: how fast check, judging and ingest are on this machine, as ratios where the machine would else decide.

    python tests/bench/speed.py [--samples 10_000_000] [--steps 20_000]

Made data, since only the speed is asked for: a run of 20 metrics like a tracker's export, and one of 3,700 metrics with
1,037 samples a step (hero_size.py). Prints one line a figure with the least that is asked for, and exits with 1 when one
is missed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import hero_size
import numpy as np
import polars as pl
import readers

from flows.playbook import load_playbook
from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.judge import judge
from flows.stages.pull import pull
from flows.store import open_store

NAMES = [
    "train/loss", "train/cross_entropy_loss", "grad/norm/total", "params/norm/total", "optim/learning_rate",
    "throughput/mfu", "throughput/tokens_per_second", "throughput/duration", "throughput/total_tokens",
    "moe/drop_fraction", "train/router/routing_entropy_mean", *(f"train/aux/metric_{k}" for k in range(9)),
]  # fmt: skip


def made_run(steps: int) -> pl.DataFrame:
    """A wide table, a row a step: noise of the size that real runs have."""
    rng = np.random.default_rng(0)
    step = np.arange(steps)
    loss = (1.7 + 8 * (step + 1.0) ** -0.35) * np.exp(0.005 * rng.standard_normal(steps))
    shape = {
        "train/loss": loss, "train/cross_entropy_loss": loss * 0.999,
        "grad/norm/total": np.exp(0.1 * rng.standard_normal(steps)), "params/norm/total": 100 + 0.001 * step,
        "optim/learning_rate": 3e-4 * np.minimum(1, (step + 1) / 500), "throughput/mfu": 40 + 0.3 * rng.standard_normal(steps),
        "throughput/tokens_per_second": 1e5 * (1 + 0.008 * rng.standard_normal(steps)),
        "throughput/duration": 2 * (1 + 0.008 * rng.standard_normal(steps)), "throughput/total_tokens": 2e5 * (step + 1.0),
        "moe/drop_fraction": 0.03 + 0.002 * rng.standard_normal(steps),
        "train/router/routing_entropy_mean": 5.9 + 0.002 * rng.standard_normal(steps),
    }  # fmt: skip
    return pl.DataFrame({"global_step": step, **{n: shape.get(n, rng.standard_normal(steps)) for n in NAMES}})


def check_speed(folder: Path) -> tuple[float, float]:
    """Seconds and peak MB of `watchkeeper check` on 10,000 steps of 20 metrics in JSON Lines; the best of three."""
    path = folder / "log.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in made_run(10_000).iter_rows(named=True))
    best = float("inf")
    code = "import sys; from flows.cli import main; sys.argv = ['watchkeeper', 'check', sys.argv[1], '--json']; main()"
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
        best = min(best, time.perf_counter() - began)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr.decode())
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return best, peak


def judge_rate() -> float:
    """Samples a second of the judge stage in one process, store included."""
    frame = made_run(50_000)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.parquet"
        frame.write_parquet(path)
        store = open_store(":memory:", clock=time.time)
        pulled = pull(store, open_sources(str(path))[0], role_of, final=True)
        began = time.perf_counter()
        done = judge(store, pulled.run, load_playbook, clock=time.time)
        return done.samples / (time.perf_counter() - began)


def ingest_ratio(folder: Path, samples: int) -> tuple[float, float]:
    """Speed of a pull over that of a bare INSERT ... SELECT from the same Parquet file, and samples a second of the pull."""
    steps = samples // len(NAMES)
    path = folder / "long.parquet"
    wide = made_run(steps)
    wide.unpivot(index="global_step", variable_name="name").sort("global_step", maintain_order=True).rename(
        {"global_step": "step"}
    ).write_parquet(path)
    del wide
    bare, pulled = [], []
    for turn in range(2):
        with duckdb.connect(str(folder / f"bare{turn}.duckdb")) as connection:
            connection.execute("CREATE TABLE samples (step DOUBLE, name VARCHAR, value DOUBLE)")
            began = time.perf_counter()
            connection.execute(f"INSERT INTO samples SELECT step, name, value FROM read_parquet('{path}')")
            bare.append(time.perf_counter() - began)
        store = open_store(folder / f"pulled{turn}.duckdb", clock=time.time)
        source = open_sources(str(path))[0]
        began = time.perf_counter()
        pull(store, source, role_of, final=True)
        pulled.append(time.perf_counter() - began)
    return min(bare) / min(pulled), samples / min(pulled)


def large_run(folder: Path, steps: int) -> tuple[list[tuple[int, dict[str, float]]], dict[str, float]]:
    """Passes over 53 new steps of 3,700 metrics, by the steps before them; and the judging of all steps between."""
    path = folder / "large.duckdb"
    store = open_store(path, clock=time.time)
    first, new = 2_000, 53
    hero_size.fill(store, 0, first)
    hero_size.judged(path)
    hero_size.fill(store, first, first + new)
    passes = [(first, hero_size.judged(path))]
    hero_size.fill(store, first + new, steps)
    done = subprocess.run([sys.executable, hero_size.__file__, str(path)], capture_output=True, check=True)
    hero_size.fill(store, steps, steps + new)
    return [*passes, (steps, hero_size.judged(path))], json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--steps", type=lambda text: int(text.replace("_", "")), default=20_000)
    asked = parser.parse_args()
    samples = asked.samples
    missed = False

    def figure(what: str, value: float, asked: float, unit: str, *, most: bool = False) -> None:
        nonlocal missed
        good = value <= asked if most else value >= asked
        missed |= not good
        print(
            f"{'ok    ' if good else 'MISSED'} {what}: {value:,.2f} {unit} ({'at most' if most else 'at least'} {asked:,g})",
            flush=True,
        )

    print(
        f"{os.cpu_count()} cores, DuckDB {duckdb.__version__}, Polars {pl.__version__}, Python {sys.version.split()[0]}"
    )
    with tempfile.TemporaryDirectory() as name:
        seconds, peak = check_speed(Path(name))
        figure("check of 10,000 steps x 20 metrics", seconds, 3.0, "s", most=True)
        figure("its peak memory", peak, 400, "MB", most=True)
        figure("judging", judge_rate(), 300_000, "samples/s")
        ratio, rate = ingest_ratio(Path(name), samples)
        figure(f"ingest of {samples:,} samples against a bare INSERT", ratio, 0.5, "times its speed")
        print(f"       ingest: {rate:,.0f} samples/s")
        for each in readers.readings(Path(name), 20_000):
            least = readers.ASKED[each.what]
            figure(f"reading {each.what}", each.ours, least.samples, "samples/s")
            ratio = each.ours / each.usual
            figure(f"reading {each.what} against {each.beside}", ratio, least.ratio, "times its speed")
        passes, backfill = large_run(Path(name), asked.steps)
        for steps, used in passes:
            what = f"a pass over 53 steps of {hero_size.METRICS:,} metrics after {steps:,}"
            figure(what, used["compute"], 2.0, "s of compute", most=True)
            print(f"       {used['samples']:,} samples, {used['seconds']:.2f} s by the clock")
        count = backfill["samples"]
        figure(f"judging {count:,} of its samples from a file", count / backfill["seconds"], 1e6, "samples/s")
        print(f"       {count / backfill['compute']:,.0f} samples per second of compute")
        figure("its peak memory", backfill["peak_mb"], 1536, "MB", most=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
