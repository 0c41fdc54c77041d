"""SIGKILL at random moments of a pass: nothing is lost or doubled, and no alert is lost or repeated uncounted."""

import json
import multiprocessing
import os
import random
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.serving import Server
from flows.store import Store, open_store

WriteLog = Callable[..., None]
Pass = Callable[[str, Any], None]  # the folder; when the moments were reached, to be filled in
FORKS = multiprocessing.get_context("forkserver")
# so that the moments fall into the work, and not into imports
EAGER = [
    "pytest",
    "flows.serving",
    "flows.wiring",
    "flows.record.charts",
    "flows.record.panels",
    "altair",
    "apprise",
    "pandas",
]
EAGER += [f"detectors.{name}" for name in ("spikes", "nonfinite", "invariants", "shifts", "divergence")]
FORKS.set_forkserver_preload(EAGER)
NAN = float("nan")
# moments after which a kill may fall, and how long each of them lasts until a pass has shown it
PLAIN = {"open": 0.2, "pull": 0.5, "judge": 0.5, "notify": 1.0, "receipt": 0.05}
FLOW = {"open": 5.0, "receipt": 0.1}
CALM_STEPS, NAN_STEPS = 300, 3  # of a part; every other part has no NaN, so that each makes one alert: begun, over
KILLS_A_PART = 5


def plain_pass(folder: str, reached: Any) -> None:
    """One pass in a process of its own."""
    from flows.config import load_config
    from flows.wiring import one_pass

    def call(name: str, work: Callable[[], Any]) -> Any:
        moment = list(PLAIN).index(name.split(maxsplit=1)[0])
        reached[moment] = reached[moment] or time.monotonic()
        return work()

    report = one_pass(load_config(Path(folder) / "watchkeeper.toml"), call=call)
    assert report.good, report.markdown()


@dataclass(frozen=True)
class FlowPass:
    """One pass as a run of the flow, on a Prefect server."""

    api: str

    def __call__(self, folder: str, reached: Any) -> None:
        """Prefect reads its settings when it is imported."""
        os.environ.update({"PREFECT_API_URL": self.api, "PREFECT_HOME": f"{folder}/client", "DO_NOT_TRACK": "1"})
        os.environ["PREFECT_LOGGING_LEVEL"] = "WARNING"
        from flows.watch import watch

        reached[0] = time.monotonic()
        told: Any = watch(f"{folder}/watchkeeper.toml", return_state=True).result()  # type: ignore[call-overload]
        assert told["good"], told


@dataclass
class Watched:
    """A folder whose log grows part by part, the passes over it, and what each of them left."""

    folder: Path
    service: Any
    write_log: WriteLog
    one_pass: Pass = plain_pass
    lasts: dict[str, float] = field(default_factory=PLAIN.copy)
    publishes: bool = False
    arrived: list[tuple[bool, list[str]]] = field(default_factory=list)  # of each pass: was it killed; message ids
    under_way: set[tuple[str, int]] = field(default_factory=set)  # delivery and attempt that a kill left open
    fell: Counter[str] = field(default_factory=Counter)  # what the killed passes had not done yet
    parts: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "watchkeeper.toml").write_text(
            '[[run]]\nsource = "a.jsonl"\n'
            + self.publishes * '[watch]\nout = "pages"\n'
            + f'[[channel]]\nname = "hook"\nurl = "json://127.0.0.1:{self.service.server_port}/"\n'
        )

    @property
    def store(self) -> Store:
        return open_store(self.folder / "watchkeeper.duckdb", clock=time.time)

    @property
    def kills(self) -> int:
        return sum(killed for killed, _ in self.arrived)

    @property
    def rows(self) -> int:
        """How many the log holds."""
        return self.parts * CALM_STEPS + (self.parts + 1) // 2 * NAN_STEPS

    def grow(self) -> None:
        """The next part of the log: calm, which ends the last incident if there is one; else another one follows."""
        first, path = self.rows, self.folder / "a.jsonl"
        self.write_log(path, first, first + CALM_STEPS)
        self.parts += 1
        self.write_log(path, first + CALM_STEPS, self.rows, lambda step: NAN)

    def run(self, kill: tuple[str, float] | None = None) -> bool:
        """A pass, left alone or killed so far (0 to 1) into what follows a moment; whether it was killed."""
        before = len(self.service.got)
        reached = FORKS.RawArray("d", len(self.lasts))
        process = FORKS.Process(target=self.one_pass, args=(str(self.folder), reached))
        process.start()
        if kill is not None:
            moment = list(self.lasts).index(kill[0])
            while process.is_alive() and not reached[moment]:
                time.sleep(0.001)
                if kill[0] == "receipt" and len(self.service.got) > before:
                    break
            process.join(kill[1] * self.lasts[kill[0]])
            if process.is_alive():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
        process.join(240)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        if process.exitcode == 0:
            self._learn([*reached[:-1], time.monotonic()])
        self._take_down(process.exitcode != 0, before)
        return process.exitcode != 0

    def _learn(self, reached: list[float]) -> None:
        for moment, start, end in zip(self.lasts, reached, reached[1:], strict=False):
            self.lasts[moment] = max(self.lasts[moment] / 2, end - start)  # most passes find a part of it done

    def _take_down(self, killed: bool, before: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.service.server_port}/settled", timeout=60):
            pass  # the service takes one after the other: whatever was sent has been put down by now
        got = self.service.got[before:-1]
        self.arrived.append((killed, [each["message_id"] for each in got]))
        if killed:
            self.fell[self._open_work()] += 1

    def _open_work(self) -> str:
        """What a killed pass had not done, as the store tells it (which opens)."""
        if not (self.folder / "watchkeeper.duckdb").exists():
            return "before the rows were stored"
        store = self.store  # not by `query`, which starts a process
        pending = store.pending_deliveries() if store.runs().height else []
        left_open = {(row["delivery_id"], row["attempts"]) for row in pending if row["sending_since"] is not None}
        left_open -= self.under_way
        self.under_way |= left_open
        if not store.runs().height or store.metrics("a")["samples"].sum() < self.rows:
            return "before the rows were stored"
        if store.unjudged("a", 10**9).rows.height:
            return "before they were judged"
        if left_open:
            return "between receipt and commit" if self.arrived[-1][1] else "before its receipt"
        return "before a message left" if pending else "after the messages"


def stored_rows(store: Store) -> pl.DataFrame:
    return store.query("SELECT step, value FROM samples ORDER BY step").rows


def rows_of_the_source(folder: Path) -> pl.DataFrame:
    lines = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    return pl.DataFrame({"step": [float(e["step"]) for e in lines], "value": [float(e["loss"]) for e in lines]})


def judged(store: Store) -> dict[str, pl.DataFrame]:
    """All that must not depend on where a pass was killed, or on whether it was a flow."""
    queries = {
        "incidents": "SELECT incident_id, severity, status, title, severity_history FROM incidents ORDER BY ALL",
        "findings": "SELECT finding_id, incident_id, onset_step, detected_step, magnitude FROM findings ORDER BY ALL",
        "deliveries": "SELECT delivery_id, message_id, transition, state FROM deliveries ORDER BY ALL",
    }
    return {name: store.query(query).rows for name, query in queries.items()}


def kill_often(watched: Watched, kills: int, seed: int) -> None:
    """Let the log grow, killing passes over each part at random moments, until one gets through."""
    chance = random.Random(seed)
    while watched.kills < kills:
        watched.grow()
        wanted = min(kills, watched.kills + KILLS_A_PART)
        while watched.kills < wanted and watched.run((chance.choice(list(watched.lasts)), chance.random())):
            pass
        watched.run()


def nothing_is_lost_or_doubled(watched: Watched, calm: Watched) -> None:
    """The killed passes against passes that were left alone, and against the log."""
    for _ in range(watched.parts):
        calm.grow()
        calm.run()
    expected = [identity for _, arrived in calm.arrived for identity in arrived]
    assert len(expected) == len(set(expected)) == watched.parts

    store = watched.store
    assert stored_rows(store).equals(rows_of_the_source(watched.folder))
    found = judged(store)
    for name, table in judged(calm.store).items():
        assert found[name].equals(table), name

    passes_of = {
        identity: [n for n, (_, got) in enumerate(watched.arrived) if identity in got] for identity in expected
    }
    repeats = dict(store.query("SELECT message_id, repeats FROM deliveries").rows.iter_rows())
    assert all(len(got) == len(set(got)) and set(got) <= set(expected) for _, got in watched.arrived)
    for identity, passes in passes_of.items():
        assert passes, f"{identity} was lost"
        assert all(watched.arrived[n][0] for n in passes[:-1]), f"{identity} came again, and nothing was killed"
        assert len(passes) - 1 <= repeats[identity], f"{identity} came again uncounted"
    assert sum(repeats.values()) == len(watched.under_way)
    again = sum(len(passes) - 1 for passes in passes_of.values())
    print(  # pytest -s shows it
        f"\n{watched.kills} kills, {stored_rows(store).height} rows, {len(expected)} alerts, {again} came again, "
        f"{sum(repeats.values())} counted as perhaps; killed {dict(watched.fell.most_common())}"
    )


@pytest.mark.parametrize(
    ("kills", "seed"), [(20, 0), *(pytest.param(50, seed, marks=pytest.mark.faults) for seed in (1, 2, 3, 4))]
)
def test_a_pass_may_be_killed_at_any_moment(
    tmp_path: Path, write_log: WriteLog, http_service: Any, kills: int, seed: int
) -> None:
    watched = Watched(tmp_path / "killed", http_service, write_log)
    kill_often(watched, kills, seed)
    nothing_is_lost_or_doubled(watched, Watched(tmp_path / "calm", http_service, write_log))


@pytest.mark.xdist_group("prefect")
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.faults)])
def test_a_run_of_the_flow_may_be_killed_at_any_moment(
    tmp_path: Path, write_log: WriteLog, http_service: Any, prefect_server: Server, kills: int
) -> None:
    flow = FlowPass(prefect_server.api)
    watched = Watched(tmp_path / "killed", http_service, write_log, flow, FLOW.copy(), publishes=True)
    kill_often(watched, kills, seed=11)
    nothing_is_lost_or_doubled(watched, Watched(tmp_path / "calm", http_service, write_log))


def hold(folder: str, ready: Any) -> None:
    """Take the lease as a pass does, and never give it back."""
    with open_store(Path(folder) / "watchkeeper.duckdb", clock=time.time).lease("a", "watch", 900):
        ready.set()
        time.sleep(600)


def test_the_next_pass_takes_over_from_a_killed_one_at_once(
    tmp_path: Path, write_log: WriteLog, http_service: Any
) -> None:
    watched = Watched(tmp_path / "killed", http_service, write_log)
    watched.grow()
    ready = FORKS.Event()
    holder = FORKS.Process(target=hold, args=(str(watched.folder), ready))
    holder.start()
    assert ready.wait(60)
    holder.kill()
    holder.join(60)
    assert not watched.run()
    assert stored_rows(watched.store).equals(rows_of_the_source(watched.folder))
