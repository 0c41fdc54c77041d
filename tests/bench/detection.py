"""make bench-detection: what watchkeeper and others find, how fast, and how often they are wrong (docs/benchmark.md).

    python tests/bench/detection.py [--system NAME]... [--family NAME]... [--quick] [--out FOLDER] [--jobs 2]

Prints the tables and writes detection.md and detection.json. A system that fails on a case is counted, and the rest goes on.
"""

import argparse
import itertools
import json
import multiprocessing
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "scenarios"), str(Path(__file__).parents[2])]

import plan as plans
from cases import Case, System
from inject import FAULTS
from plan import FAMILIES, Plan
from readings import read
from score import Judged, broken, judge, row
from split import HALVES
from table import markdown

PATIENCE = 120  # seconds that a system may take for one case
PACKAGES = ("watchkeeper", "numpy", "scipy", "polars", "pyarrow", "statsmodels", "ruptures")
_given: dict[str, System] = {}  # systems that a caller handed over; they are judged in its own process


def system_of(name: str) -> System:
    """A system by name: a worker looks it up for itself, as a closure cannot be sent to it."""
    if name in _given:
        return _given[name]
    from systems import SYSTEMS

    return SYSTEMS[name]


def judge_one(name: str, plan: Plan) -> Judged:
    """Write a case, let a system say its alarms, match them. Never raises: a failure is a result."""
    begun = time.process_time()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        case = Case(plan.title, plan.family, plan.half, Path(), ())
        try:
            case = plans.make(plan, Path(folder))
            log = read(case)
            begun = time.process_time()
            with _patience(PATIENCE):
                alarms = system_of(name)(case)
            seconds = time.process_time() - begun
            return judge(case, sorted(alarms, key=lambda alarm: alarm.step), log, seconds)
        except Exception as error:  # noqa: BLE001  whatever a foreign system raises is its result
            return broken(case, f"{type(error).__name__}: {error}"[:200], time.process_time() - begun)


class _patience:
    """Raises TimeoutError when the block takes longer; only a main thread can be interrupted."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._out)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _out(self, *_: object) -> None:
        raise TimeoutError(f"more than {self.seconds:g} s for one case")


def run(name: str, todo: Sequence[Plan], pool: ProcessPoolExecutor | None, jobs: int, seconds: float) -> list[Judged]:
    """Judge the plans in their order until the time is up; what has begun is finished. Without a pool: in this process."""
    until = time.monotonic() + seconds
    inside = itertools.takewhile(lambda _: time.monotonic() < until, todo)
    if pool is None:
        return [judge_one(name, each) for each in inside]
    return list(_in_flight(pool, partial(judge_one, name), inside, 2 * jobs))


def _in_flight(pool: ProcessPoolExecutor, work: Any, todo: Iterator[Plan], most: int) -> Iterator[Judged]:
    """Results as they come, with at most `most` plans handed out: a deadline is heeded."""
    running: set[Future[Judged]] = {pool.submit(work, each) for each in itertools.islice(todo, most)}
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        running |= {pool.submit(work, each) for each in itertools.islice(todo, len(done))}
        yield from (future.result() for future in done)


def rows(judged: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """One row for everything and one for each half that has a case."""
    ordered = sorted(judged, key=lambda j: j.case)
    by_half = {half: [j for j in ordered if j.half == half] for half in HALVES}
    return {"all": row(ordered), **{half: row(part) for half, part in by_half.items() if part}}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; --quick is small enough for a test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", help="only this one; repeatable")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these cases; repeatable")
    parser.add_argument("--base", action="append", default=[], help="inject into this recording, such as runs/healthy")
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS, help="inject only this one; repeatable")
    parser.add_argument("--placements", type=int, help="of each fault and amplitude, both halves together [20]")
    parser.add_argument("--seeds", type=int, help="of each scenario [10]")
    parser.add_argument("--null-samples", type=int, help="generated samples in which nothing happens [10,000,000]")
    parser.add_argument("--minutes", type=float, default=20.0, help="for one system; the rest is left out, and counted")
    parser.add_argument("--quick", action="store_true", help="2 placements, 2 seeds, 200,000 null samples")
    parser.add_argument("--out", type=Path, default=Path("build/bench-detection"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(argv)
    usual = (2, 2, 200_000) if given.quick else (20, 10, 10_000_000)
    for name, value in zip(("placements", "seeds", "null_samples"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, value)
    return given


def planned(given: argparse.Namespace) -> tuple[dict[str, list[Plan]], list[str]]:
    """The plans by family, and what is worth a note."""
    wanted, notes = given.family or FAMILIES, []
    out: dict[str, list[Plan]] = {}
    for family in wanted:
        if family == "scenario" and find_spec("scenarios") is None:
            notes.append("no scenarios: tests/scenarios is not there")
        elif family == "recorded":
            out[family] = plans.recorded()
        elif family == "injected":
            out[family] = plans.injected(given.placements, given.base, given.fault)
        elif family == "scenario":
            out[family] = plans.scenario(given.seeds)
        else:
            out[family] = plans.nulls(given.null_samples)
    return out, notes


def measure(
    name: str, todo: Mapping[str, Sequence[Plan]], pool: ProcessPoolExecutor | None, given: argparse.Namespace
) -> tuple[list[Judged], list[str]]:
    """All cases of one system: a fifth of its time is kept for the null runs, which get what the others leave too."""
    begun, seconds = time.monotonic(), 60 * given.minutes
    runs = [each for family in ("recorded", "scenario", "injected") for each in todo.get(family, ())]
    null = list(todo.get("null", ()))
    judged = run(name, runs, pool, given.jobs, seconds * (0.8 if null else 1))
    quiet = run(name, null, pool, given.jobs, seconds - (time.monotonic() - begun))
    left = (len(runs) - len(judged), len(null) - len(quiet))
    notes = [f"{name}: {left[0]:,} cases and {left[1]:,} null runs left out, its time was up"] if any(left) else []
    return judged + quiet, notes


def workers(jobs: int) -> ProcessPoolExecutor:
    """Processes for all systems. No fork: the threads of polars do not survive it."""
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))


def chosen(names: Iterable[str], known: Mapping[str, System]) -> list[str]:
    """The systems asked for. Raises SystemExit for one that does not exist."""
    names = list(names) or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no system {unknown[0]!r}; there are {', '.join(known)}")
    return names


def main(argv: Sequence[str] | None = None, known: Mapping[str, System] | None = None) -> dict[str, Any]:
    """Measure, print, write; returns what detection.json holds."""
    given = arguments(argv)
    _given.clear()
    _given.update(known or {})
    if known is None:
        from systems import SYSTEMS as known
    names = chosen(given.system or (), known)
    todo, notes = planned(given)
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python tests/bench/detection.py", *(sys.argv[1:] if argv is None else argv)]),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "cases": {family: len(each) for family, each in todo.items()},
        "seeds": {family: sorted({p.seed for p in each}) for family, each in todo.items() if family != "recorded"},
        "systems": {},
        "errors": {},
        "notes": notes,
    }
    with nullcontext() if given.jobs == 1 or _given else workers(given.jobs) as pool:
        for name in names:
            begun = time.monotonic()
            judged, more = measure(name, todo, pool, given)
            report["systems"][name] = rows(judged)
            report["errors"][name] = [{"case": j.case, "error": j.error} for j in judged if j.error]
            report["notes"] += more
            print(f"{name}: {len(judged):,} cases in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    given.out.mkdir(parents=True, exist_ok=True)
    text = markdown(report)
    (given.out / "detection.md").write_text(text, encoding="utf-8")
    (given.out / "detection.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(text)
    return report


if __name__ == "__main__":
    main()
