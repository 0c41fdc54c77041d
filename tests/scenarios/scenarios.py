"""Published incidents of large training runs, generated at full scale from their published numbers.

`SCENARIOS` by name; `write` makes the log of one and says what is true of it, `write_healthy` the same stretch of the same run
with nothing in it, for false alarms. README.md has the table. Nothing here is a recording, and each file says so.
"""

import zlib
from pathlib import Path

import bloom
import hero_levels
import hero_restarts
import marin_8b
import marin_32b
import marin_moe
import numpy as np
from cases import Case
from runlog import save
from scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    each.name: each
    for module in (hero_levels, hero_restarts, marin_moe, marin_32b, marin_8b, bloom)
    for each in module.SCENARIOS
}
SKIPPED = {
    "incident 15": "one final number against a forecast from smaller runs; nothing happens within the run's own log",
    "incident 26": "a host is killed while it restores, before the first row; host memory is no metric of the step log",
}


def write(name: str, folder: Path, seed: int, half: str = "held_out") -> Case:
    """Write the scenario's log into `folder`; the same seed gives the same bytes."""
    told = SCENARIOS[name]
    log = _write(told, folder, seed, name, incident=True)
    return Case(name, "scenario", half, log, told.truths, told.events, told.seconds_per_step)


def write_healthy(name: str, folder: Path, seed: int, half: str = "held_out") -> Case:
    """The scenario's stretch of its run without the incident and without what was planned: every alarm is a false one."""
    told = SCENARIOS[name]
    log = _write(told, folder, seed, f"{name}-healthy", incident=False)
    return Case(f"{name}-healthy", "scenario", half, log, (), (), told.seconds_per_step)


def _write(told: Scenario, folder: Path, seed: int, run: str, *, incident: bool) -> Path:
    rng = np.random.default_rng([seed, zlib.crc32(told.name.encode())])
    path = folder / f"generated-{run}-{seed}.parquet"
    save(told.build(rng, incident), path, {"scenario": told.name, "source": told.source, "seed": str(seed)})
    return path
