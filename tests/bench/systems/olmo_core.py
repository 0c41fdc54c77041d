"""OLMo-core's spike rule: mean plus six standard deviations of the last 128 values, on loss and on gradient norm.

Source: allenai/OLMo-core, src/olmo_core/train/callbacks/stability_monitor.py (commit 138b1fca). A value is a spike
when it is greater than mean + 6 sigma of the 128 values before it (population sigma); the value then enters the
window, spike or not. Nothing is said before 128 values are there, nor when sigma is below 1e-10. The windows are part
of the checkpoint, so a resumed attempt goes on with the values that stood before it.

The SkipStepOptimizer (src/olmo_core/optim/skip_step_optimizer.py) has the same six sigmas over 128 values but skips
on both sides, with the sample sigma, from the 64th value on; what is scored here is the monitor, which is made to
tell.

Reads one loss and one gradient norm of the whole run. The original tells of every step; here an alarm stands for the
whole stretch of consecutive spikes (latch). Severity 2: it informs, it asks for nothing.
"""

import numpy as np
from cases import INVESTIGATE, Alarm, Case

from systems.samples import Line, alarm, begins, in_order, main_line, resumed, samples, trailing

WINDOW, SIGMAS, LEAST = 128, 6.0, 1e-10


def olmo_core(case: Case) -> list[Alarm]:
    """Spikes of the loss and of the gradient norm."""
    frame = samples(case)
    found = [main_line(frame, role) for role in ("loss", "grad_norm")]
    return in_order([each for line in found if line is not None for each in _spikes(line)])


def _spikes(line: Line) -> list[Alarm]:
    out = []
    for lineage, own in resumed(line):
        mean, sigma = trailing(lineage.value, WINDOW)
        with np.errstate(invalid="ignore"):
            hot = (sigma >= LEAST) & (lineage.value > mean + SIGMAS * sigma)
        out += [alarm(lineage, at, INVESTIGATE, "spike") for at in begins(hot) if at >= own]
    return out
