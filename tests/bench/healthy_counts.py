"""How often each detector speaks where nothing is wrong: the baseline of test_false_alarms_stay.py.

    python tests/bench/healthy_counts.py > tests/bench/false_alarms.toml

Judges the healthy stretches of the tuning half (all metrics, slow spells of the machine included) and 500,000 generated samples.
Run it after a change that is meant to move the counts, and say in the commit why they moved.
"""

import tempfile
from collections import Counter
from pathlib import Path

import null
import polars as pl
from base import STEPS
from cases import INVESTIGATE, NOTE, Case
from recorded import recorded_cases
from score import is_healthy
from split import seeds_of

from flows.playbook import load_playbook
from flows.sources.catalogue import open_sources
from flows.sources.roles import role_of
from flows.stages.judge import judge
from flows.stages.pull import pull
from flows.store import open_store

NULL_RUNS, NULL_STEPS = 4, 15_625  # 500,000 samples, one run of each flavour
Counts = dict[str, dict[str, int]]  # stream -> "detector alarms" or "detector notes" -> findings


def count(log: Path) -> dict[str, int]:
    """Findings of a log by detector: alarms (severity 2 and more) and notes (severity 1)."""
    store = open_store(":memory:", clock=lambda: 1e9)
    (source,) = open_sources(str(log))
    run = pull(store, source, role_of, final=True).run
    judge(store, run, load_playbook, clock=lambda: 1e9)
    said: Counter[str] = Counter()
    for row in store.findings(run):
        if row["severity"] >= NOTE:
            said[f"{row['detector']} {'alarms' if row['severity'] >= INVESTIGATE else 'notes'}"] += 1
    return dict(sorted(said.items()))


def stretch(case: Case, folder: Path) -> Path:
    """The log of a recording up to the first thing in it that is worth more than a note."""
    onsets = [truth.onset for truth in case.truths if truth.benign or truth.severity >= INVESTIGATE]
    if not onsets:
        return case.log
    frame = pl.read_parquet(case.log)
    step = next(name for name in STEPS if name in frame.columns)
    log = folder / f"{case.name.replace('/', '-')}.parquet"
    frame[: int((frame[step] >= min(onsets)).arg_max() or 0)].write_parquet(log)
    return log


def counts() -> Counts:
    """Of each healthy recording of the tuning half and of the first four, fault or not, and of the null runs."""
    out: Counts = {}
    with tempfile.TemporaryDirectory(prefix="healthy-") as name:
        folder = Path(name)
        for case in recorded_cases():
            if case.half == "tuning" and (is_healthy(case.truths) or case.name.startswith("runs/")):
                out[case.name] = count(stretch(case, folder))
        for seed in seeds_of("tuning", NULL_RUNS):
            out[f"null/{null.flavour_of(seed)}"] = count(null.write(seed, folder, NULL_STEPS).log)
    return out


def as_toml(counted: Counts) -> str:
    """The baseline file."""
    lines = ["# Made by: python tests/bench/healthy_counts.py > tests/bench/false_alarms.toml"]
    for stream, said in counted.items():
        lines += ["", f'["{stream}"]', *(f'"{what}" = {n}' for what, n in said.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_toml(counts()))
