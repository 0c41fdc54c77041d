"""Answers every file with alarms of every kind at a regular grid of steps on every metric: as noisy as can be.

Nothing of the values is looked at. Every 8 steps (a 2,000th of the log if that is more) each metric gets an alarm of
the highest severity, and its kind goes round; the patterns are all there are. The scorer must punish it.
"""

from cases import PAGE, Alarm, Case

from flows.playbook import load_playbook
from systems.samples import samples

KINDS = ("spike", "level", "divergence", "nonfinite", "trend", "variance", "schedule", "invariant", "stall", "rewind")
EVERY, MOST = 8, 2_000


def everything(case: Case) -> list[Alarm]:
    """An alarm on each metric at each step of the grid."""
    frame = samples(case)
    if not len(frame):
        return []
    metrics = frame.select("name", "role").unique(maintain_order=True).rows()
    patterns = tuple(sorted(pattern.name for pattern in load_playbook()))
    first, last = int(frame["step"].min()), int(frame["step"].max())  # type: ignore[arg-type]
    grid = range(first, last + 1, max(EVERY, (last - first) // MOST))
    return [
        Alarm(step, step, name, role, PAGE, KINDS[(turn + place) % len(KINDS)], patterns)
        for turn, step in enumerate(grid)
        for place, (name, role) in enumerate(metrics)
    ]
