"""make bench: how long the operating record of a run with 50 incidents and 100 metrics takes, and how large it is.

    python tests/bench/record_size.py [--steps 5000] [--keep FOLDER]

Made data, since only the speed is asked for. Prints a line for the first rendering, for one in which nothing is new, and
for one after a word about one incident; exits with 1 when the first takes more than a minute of processor time, or the
site is not < 10 MB.
"""

import argparse
import json
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from flows.records import STORED_SCHEMA, Attempt, Description, Event, Operation
from flows.sources.roles import role_of
from flows.stages.gather import Terms
from flows.stages.record import write_record
from flows.store import Store, open_store

RUN, NOW, MOMENT = "hero", 1.7e9, datetime(2026, 1, 1)
MOST_SECONDS, MOST_BYTES = 60.0, 10e6


def names_of(metrics: int) -> list[str]:
    """The loss first."""
    return ["train/loss", "grad/norm/total", *(f"grad/norm/block_{k}" for k in range(metrics - 2))]


def made_store(file: Path | str, *, incidents: int = 50, metrics: int = 100, steps: int = 5000, each: int = 8) -> Store:
    """A store with `incidents` incidents of `each` metrics, in a run of `metrics` metrics and `steps` steps."""
    store = open_store(file, clock=lambda: NOW)
    store.register_run(Description(RUN, "hero.jsonl", "jsonl", "step"))
    chance = np.random.default_rng(1)
    names = names_of(metrics)
    starts = np.linspace(steps / 10, steps * 0.98, incidents).astype(int)
    values = np.exp(0.1 * chance.standard_normal((metrics, steps)))
    for number, start in enumerate(starts):
        values[[(number * each + k) % metrics for k in range(each)], start : start + 12] *= 3
    rows = pl.DataFrame(
        {
            "step": np.tile(np.arange(steps, dtype=float), metrics), "logged_at": None,
            "name": np.repeat(names, steps), "value": values.ravel(), "attempt": 1, "late": False,
        },
        schema=STORED_SCHEMA,
    )  # fmt: skip
    store.append(RUN, rows, [Attempt(1, 0.0, None, "start")], "", "", {}, role_of)
    for at in range(0, steps, max(steps // 20, 1)):
        store.add_event(RUN, Event("checkpoint", float(at)))
    told = [(f"i{number:03}", float(start)) for number, start in enumerate(starts)]
    findings = [
        _finding(identity, k, names[(number * each + k) % metrics], start)
        for number, (identity, start) in enumerate(told)
        for k in range(each)
    ]
    coverage = [{"check_name": "spikes", "metric": name, "reason": "checked", "count": 1} for name in names]
    store.save_judgement(
        RUN, upto_batch=1, run_state="", states={}, coverage=coverage, findings=findings,
        incidents=[_incident(identity, start) for identity, start in told],
    )  # fmt: skip
    return store


def _finding(incident: str, number: int, metric: str, start: float) -> dict[str, object]:
    evidence = json.dumps({"before": 1.0, "after": 3.0, "z": 11.0})
    return {
        "run": RUN, "finding_id": f"{incident}-{number}", "incident_id": incident, "attempt": 1, "detector": "spikes",
        "version": "1", "parameters": "{}", "kind": "spike", "metric": metric, "role": role_of(metric).role,
        "direction": "up", "onset_step": start, "detected_step": start + 2, "magnitude": 1.1, "unit": "log",
        "severity": 2, "episode": f"{incident}-{number}", "evidence": evidence, "recorded_at": MOMENT,
    }  # fmt: skip


def _incident(identity: str, start: float) -> dict[str, object]:
    said = {"matched": ["loss up", "gradient norm up"], "contradicted": [], "missing": ["update norm"], "checks": []}
    offered = {
        "do": "Wait and track.", "why": "Most come back by themselves.", "cost": "none", "evidence": ["three of four"],
        "counter_evidence": [], "reversible": True,
    }  # fmt: skip
    return {
        "run": RUN, "incident_id": identity, "attempt": 1, "severity": 2, "status": "resolved",
        "title": f"8 metrics x3 at step {start:,.0f}", "pattern": "loss_spike", "confidence": 0.8, "onset_step": start,
        "detected_step": start + 2, "resolved_step": start + 30,
        "severity_history": json.dumps([{"step": start + 2, "severity": 2}]),
        "hypotheses": json.dumps([{"pattern": f"p{k}", "title": f"a cause {k}", "score": 3.0 - k, **said} for k in range(4)]),
        "suggestions": json.dumps([offered] * 3), "opened_at": MOMENT, "updated_at": MOMENT,
    }  # fmt: skip


def main() -> int:
    """Print the figures; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = given.keep or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        store, out = made_store(home / "s.duckdb", steps=given.steps), home / "record"
        seconds = [_timed(store, out, "first rendering"), _timed(store, out, "nothing new")]
        store.operate(Operation(RUN, "note", "ada", NOW, "seen", "i007", step=given.steps / 2))
        seconds.append(_timed(store, out, "a note on one incident"))
        files = [file for file in out.rglob("*") if file.is_file()]
        pages = sum(file.stat().st_size for file in files if file.suffix != ".parquet")
        samples = sum(file.stat().st_size for file in files if file.suffix == ".parquet")
    print(f"{'size':24} {pages / 1e6:.1f} MB in {len(files)} files, and {samples / 1e6:.1f} MB of samples")
    return int(seconds[0] > MOST_SECONDS or pages >= MOST_BYTES)


def _timed(store: Store, out: Path, what: str) -> float:
    begun, busy = time.perf_counter(), time.process_time()
    done = write_record(store, out, Terms())
    took, worked = time.perf_counter() - begun, time.process_time() - busy
    print(f"{what:24} {worked:.1f} s of processor in {took:.1f} s, {len(done.written)} files written")
    return worked


if __name__ == "__main__":
    sys.exit(main())
