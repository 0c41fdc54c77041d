"""What mlflow_peer.py logs, as rows of step, time, name, value."""

import math
from datetime import datetime, timedelta

STEPS = 300
FIRST = datetime(2026, 9, 21, 14, 13, 20)


def expected() -> list[tuple[float, datetime, str, float]]:
    rows = []
    for step in range(STEPS):
        time = FIRST + timedelta(milliseconds=10 * step)
        grad = {3: math.nan, 4: -math.inf}.get(step, 0.5 + step)
        rows += [(float(step), time, "grad", grad), (float(step), time, "train/loss", 4 / (1 + step))]
        if step % 10 == 0:
            rows.append((float(step), time + timedelta(milliseconds=5), "eval", 5.0 + step))
    return rows
